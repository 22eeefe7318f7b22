package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
)

type call struct {
	Op, Topic, Group string
	Partitions       int
	Partition        int32
	Replicas         int16
	Offset           int64
	Configs          map[string]string
}

func admin(servers []string) {
	calls := kadm.NewClient(client(servers))
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var asked call
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fail(err)
		}
		told, err := answer(context.Background(), calls, asked)
		if err != nil {
			told = line{"error": err.Error()}
		}
		put(told)
	}
	calls.Close()
}

func answer(now context.Context, calls *kadm.Client, asked call) (line, error) {
	switch asked.Op {
	case "create":
		configs := map[string]*string{}
		for name, value := range asked.Configs {
			configs[name] = kadm.StringPtr(value)
		}
		_, err := calls.CreateTopic(now, int32(asked.Partitions), asked.Replicas, configs, asked.Topic)
		return line{}, err
	case "widen":
		told, err := calls.UpdatePartitions(now, asked.Partitions, asked.Topic)
		return line{}, first(err, told.Error())
	case "delete":
		_, err := calls.DeleteTopic(now, asked.Topic)
		return line{}, err
	case "topics":
		told, err := calls.ListTopics(now)
		return line{"topics": told.Names()}, err
	case "describe":
		told, err := calls.ListTopics(now, asked.Topic)
		return line{"partitions": len(told[asked.Topic].Partitions)}, first(err, told.Error())
	case "configs":
		return configs(now, calls, asked.Topic)
	case "set":
		return line{}, set(now, calls, asked)
	case "ends":
		earliest, err := calls.ListStartOffsets(now, asked.Topic)
		latest, other := calls.ListEndOffsets(now, asked.Topic)
		from, _ := earliest.Lookup(asked.Topic, asked.Partition)
		to, _ := latest.Lookup(asked.Topic, asked.Partition)
		return line{"earliest": from.Offset, "latest": to.Offset}, first(err, other)
	case "purge":
		wanted := kadm.Offsets{}
		wanted.AddOffset(asked.Topic, asked.Partition, asked.Offset, -1)
		told, err := calls.DeleteRecords(now, wanted)
		return line{}, first(err, told.Error())
	default:
		return answerOnGroup(now, calls, asked)
	}
}

func answerOnGroup(now context.Context, calls *kadm.Client, asked call) (line, error) {
	switch asked.Op {
	case "groups":
		told, err := calls.ListGroups(now)
		return line{"groups": told.Groups()}, err
	case "members":
		told, err := calls.DescribeGroups(now, asked.Group)
		return line{"members": len(told[asked.Group].Members)}, first(err, told.Error())
	case "committed":
		told, err := calls.FetchOffsets(now, asked.Group)
		offsets := map[string]int64{}
		told.Each(func(it kadm.OffsetResponse) {
			offsets[strconv.Itoa(int(it.Partition))] = it.At
		})
		return line{"offsets": offsets}, first(err, told.Error())
	case "reset":
		wanted := kadm.Offsets{}
		wanted.AddOffset(asked.Topic, asked.Partition, asked.Offset, -1)
		told, err := calls.CommitOffsets(now, asked.Group, wanted)
		return line{}, first(err, told.Error())
	case "forget":
		_, err := calls.DeleteGroup(now, asked.Group)
		return line{}, err
	default:
		return line{"not_offered": "no such call"}, nil
	}
}

func configs(now context.Context, calls *kadm.Client, topic string) (line, error) {
	told, err := calls.DescribeTopicConfigs(now, topic)
	values := map[string]string{}
	for _, resource := range told {
		for _, config := range resource.Configs {
			values[config.Key] = config.MaybeValue()
		}
		err = first(err, resource.Err)
	}
	return line{"configs": values}, err
}

func set(now context.Context, calls *kadm.Client, asked call) error {
	changes := []kadm.AlterConfig{}
	for name, value := range asked.Configs {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: kadm.StringPtr(value)})
	}
	told, err := calls.AlterTopicConfigs(now, changes, asked.Topic)
	for _, resource := range told {
		err = first(err, resource.Err)
	}
	return err
}

func first(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}
