package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// usage: <program> <url> <subject> <fast|async> <messages> <bytes> <flow> <outstanding>
func main() {
	number := func(at int) int { n, err := strconv.Atoi(os.Args[at]); check(err); return n }
	url, subject, mode, count, size := os.Args[1], os.Args[2], os.Args[3], number(4), number(5)
	nc, err := nats.Connect(url)
	check(err)
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(number(6)*number(7)))
	check(err)
	body := make([]byte, size)
	told := map[string]any{}
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	begin := time.Now()
	if mode == "fast" {
		var errs []string
		publisher, err := jetstreamext.NewFastPublisher(js,
			jetstreamext.FastPublishFlowControl{Flow: uint16(number(6)), MaxOutstandingAcks: uint16(number(7)), AckTimeout: 10 * time.Second},
			jetstreamext.WithFastPublisherErrorHandler(func(err error) { errs = append(errs, err.Error()) }))
		check(err)
		for i := 1; i < count; i++ {
			_, err := publisher.Add(subject, body)
			check(err)
		}
		ack, err := publisher.Commit(ctx, subject, body)
		check(err)
		told["ack"], told["errors"] = ack, errs
	} else {
		for i := 0; i < count; i++ {
			_, err := js.PublishAsync(subject, body)
			check(err)
		}
		<-js.PublishAsyncComplete()
	}
	told["seconds"] = time.Since(begin).Seconds()
	check(json.NewEncoder(os.Stdout).Encode(told))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
