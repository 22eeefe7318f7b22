// franz-go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const pollTimeout = 100 * time.Millisecond

type line map[string]any

type arguments struct {
	Topic, Group, Codec, Protocol string

	ClientID        string `json:"client_id"`
	TransactionalID string `json:"transactional_id"`
	Partition       int32
	Offset          int64
	TimeMs          *int64 `json:"time_ms"`
	Count           *int
	Release         int
	Idempotent      bool
	Committed       bool
}

var out sync.Mutex

func put(told any) {
	text, _ := json.Marshal(told)
	out.Lock()
	defer out.Unlock()
	fmt.Println(string(text))
}

func fail(err error) {
	put(line{"error": err.Error()})
	os.Exit(1)
}

func main() {
	servers := strings.Split(os.Args[1], ",")
	var asked arguments
	if err := json.Unmarshal([]byte(os.Args[3]), &asked); err != nil {
		fail(err)
	}
	switch verb := os.Args[2]; verb {
	case "version":
		put(line{"version": version()})
	case "consume":
		consume(servers, asked)
	case "group":
		group(servers, asked)
	case "share":
		share(servers, asked)
	case "transact":
		transact(servers, asked)
	case "produce":
		produce(servers, asked)
	case "admin":
		admin(servers)
	default:
		put(line{"not_offered": "no " + verb})
	}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			return strings.TrimPrefix(module.Version, "v")
		}
	}
	return "unknown"
}

func client(servers []string, options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(append(options, kgo.SeedBrokers(servers...))...)
	if err != nil {
		fail(err)
	}
	return made
}

func consume(servers []string, asked arguments) {
	start := kgo.NewOffset().At(asked.Offset)
	if asked.TimeMs != nil {
		start = kgo.NewOffset().AfterMilli(*asked.TimeMs)
	}
	assigned := map[string]map[int32]kgo.Offset{asked.Topic: {asked.Partition: start}}
	isolation := kgo.ReadUncommitted()
	if asked.Committed {
		isolation = kgo.ReadCommitted()
	}
	reader := client(servers, kgo.ConsumePartitions(assigned), kgo.FetchIsolationLevel(isolation))
	ended := endOfInput()
	for !isClosed(ended) {
		putPolled(reader, -1)
	}
	reader.Close()
}

func group(servers []string, asked arguments) {
	options := []kgo.Opt{
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.ClientID(asked.ClientID),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
	}
	if asked.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	reader := client(servers, options...)
	ended, left := endOfInput(), -1
	if asked.Count != nil {
		left = *asked.Count
	}
	for !isClosed(ended) && left != 0 {
		records := putPolled(reader, left)
		if len(records) > 0 {
			if err := reader.CommitRecords(context.Background(), records...); err != nil {
				fail(err)
			}
		}
		if left > 0 {
			left -= len(records)
		}
		reader.AllowRebalance()
	}
	reader.Close()
}

// At most so many records; -1: all that there are.
func putPolled(reader *kgo.Client, most int) []*kgo.Record {
	soon, cancel := context.WithTimeout(context.Background(), pollTimeout)
	defer cancel()
	fetches := reader.PollRecords(soon, most)
	fetches.EachError(func(_ string, _ int32, err error) {
		if err != context.DeadlineExceeded {
			fail(err)
		}
	})
	for _, record := range fetches.Records() {
		put(line{"partition": record.Partition, "offset": record.Offset, "value": string(record.Value)})
	}
	return fetches.Records()
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func produce(servers []string, asked arguments) {
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[asked.Codec]),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(20 * time.Millisecond),
	}
	if !asked.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	writer := client(servers, options...)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		record := &kgo.Record{Topic: asked.Topic, Partition: asked.Partition, Value: []byte(lines.Text())}
		writer.Produce(context.Background(), record, func(told *kgo.Record, err error) {
			if err != nil {
				put(line{"error": err.Error()})
				return
			}
			put(line{"offset": told.Offset, "value": string(told.Value)})
		})
	}
	if err := writer.Flush(context.Background()); err != nil {
		fail(err)
	}
	writer.Close()
}

func endOfInput() chan struct{} {
	ended := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		}
		close(ended)
	}()
	return ended
}

func isClosed(ended chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
		return false
	}
}
