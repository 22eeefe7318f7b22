package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
)

type step struct {
	Op     string
	Values []string
}

func transact(servers []string, asked arguments) {
	writer := client(servers,
		kgo.TransactionalID(asked.TransactionalID),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	put(line{})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var next step
		if err := json.Unmarshal(lines.Bytes(), &next); err != nil {
			fail(err)
		}
		told := line{}
		if err := take(writer, asked, next); err != nil {
			told = line{"error": err.Error()}
		}
		put(told)
	}
	writer.Close()
}

func take(writer *kgo.Client, asked arguments, next step) error {
	now := context.Background()
	switch next.Op {
	case "begin":
		return writer.BeginTransaction()
	case "send":
		records := []*kgo.Record{}
		for _, value := range next.Values {
			records = append(records, &kgo.Record{
				Topic: asked.Topic, Partition: asked.Partition, Value: []byte(value),
			})
		}
		return writer.ProduceSync(now, records...).FirstErr()
	case "commit":
		return writer.EndTransaction(now, kgo.TryCommit)
	case "abort":
		return writer.EndTransaction(now, kgo.TryAbort)
	}
	return fmt.Errorf("no %s", next.Op)
}
