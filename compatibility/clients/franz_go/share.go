package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Reads as a member of the share group: releases the first records, and accepts the others.
func share(servers []string, asked arguments) {
	taken := func(_ *kgo.Client, results kgo.ShareAckResults) {
		if err := results.Error(); err != nil {
			fail(err)
		}
	}
	reader := client(servers,
		kgo.ShareGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ClientID(asked.ClientID),
		kgo.ShareAckCallback(taken),
	)
	for ended := endOfInput(); !isClosed(ended); {
		soon, cancel := context.WithTimeout(context.Background(), pollTimeout)
		fetches := reader.PollRecords(soon, -1)
		cancel()
		fetches.EachError(func(_ string, _ int32, err error) {
			if err != context.DeadlineExceeded {
				fail(err)
			}
		})
		answers := []line{}
		for _, record := range fetches.Records() {
			status := kgo.AckAccept
			if asked.Release > 0 {
				asked.Release--
				status = kgo.AckRelease
			}
			record.Ack(status)
			answers = append(answers, line{
				"partition":  record.Partition,
				"offset":     record.Offset,
				"value":      string(record.Value),
				"deliveries": record.DeliveryCount(),
				"accepted":   status == kgo.AckAccept,
			})
		}
		if err := reader.FlushAcks(context.Background()); err != nil {
			fail(err)
		}
		for _, answer := range answers {
			put(answer)
		}
	}
	reader.Close()
}
