// nats.go; see compatibility.port.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
)

const wait = 10 * time.Second

var servers string

func put(line map[string]any) {
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func got[T any](value T, err error) T {
	must(err)
	return value
}

func same(found, wanted any, what string) {
	if !reflect.DeepEqual(found, wanted) {
		panic(fmt.Errorf("%s: %.200v instead of %.200v", what, found, wanted))
	}
}

func connect(options ...nats.Option) *nats.Conn {
	options = append(options, nats.ReconnectWait(200*time.Millisecond))
	return got(nats.Connect(servers, options...))
}

func numbers(count int) []string {
	found := make([]string, count)
	for number := range found {
		found[number] = strconv.Itoa(number)
	}
	return found
}

func texts(subscription *nats.Subscription, count int) []string {
	found := make([]string, count)
	for place := range found {
		found[place] = string(got(subscription.NextMsg(wait)).Data)
	}
	return found
}

// Received messages, as callbacks on other goroutines see them.
type seen struct {
	lock  sync.Mutex
	found []string
}

func (s *seen) add(message *nats.Msg) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.found = append(s.found, string(message.Data))
}

func (s *seen) all() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Clone(s.found)
}

func survive(others int) {
	reconnected := make(chan bool, 10)
	options := []nats.Option{
		nats.MaxReconnects(-1),
		nats.ReconnectHandler(func(*nats.Conn) { reconnected <- true }),
	}
	if others == 0 {
		options = append(options, nats.IgnoreDiscoveredServers())
	}
	client, subject := connect(options...), nuid.Next()
	subscription := got(client.SubscribeSync(subject))
	must(client.Flush())
	if found := len(client.DiscoveredServers()); found < others {
		panic(fmt.Errorf("%d servers are discovered", found))
	}
	put(map[string]any{"ready": true})
	select {
	case <-reconnected:
	case <-time.After(time.Minute):
		panic(errors.New("reconnect: not within a minute"))
	}
	must(client.Publish(subject, []byte("again")))
	same(texts(subscription, 1), []string{"again"}, "after it")
	client.Close()
}

var verbs = map[string]func(){
	"connect": func() {
		client := connect()
		must(client.Flush())
		got(client.RTT())
		client.Close()
	},
	"pubsub": func() {
		sender, reader, base := connect(), connect(), "t."+nuid.Next()
		exact := got(reader.SubscribeSync(base + ".a.b"))
		star := got(reader.SubscribeSync(base + ".*.b"))
		rest := got(reader.SubscribeSync(base + ".>"))
		must(reader.Flush())
		for _, number := range numbers(100) {
			must(sender.Publish(base+".a.b", []byte(number)))
		}
		binary := make([]byte, 256)
		for number := range binary {
			binary[number] = byte(number)
		}
		must(sender.Publish(base+".c.b", nil))
		must(sender.Publish(base+".c.b.d", binary))
		must(sender.Flush())
		same(texts(exact, 100), numbers(100), "exact")
		same(texts(star, 101), append(numbers(100), ""), "*")
		same(texts(rest, 101), append(numbers(100), ""), ">")
		same(bytes.Equal(got(rest.NextMsg(wait)).Data, binary), true, "binary")
		sender.Close()
		reader.Close()
	},
	"queue": func() {
		sender, subject, members := connect(), nuid.Next(), [2]seen{}
		for place := range members {
			reader := connect()
			defer reader.Close()
			got(reader.QueueSubscribe(subject, "q", members[place].add))
			must(reader.Flush())
		}
		wanted := map[string]bool{}
		for _, number := range numbers(200) {
			wanted[number] = true
			must(sender.Publish(subject, []byte(number)))
		}
		must(sender.Flush())
		deadline := time.Now().Add(wait)
		for len(members[0].all())+len(members[1].all()) < 200 && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
		all := append(members[0].all(), members[1].all()...)
		same(len(all), 200, "count of both members")
		for _, number := range all {
			delete(wanted, number)
		}
		same(len(wanted), 0, "lost")
		same(len(members[0].all())*len(members[1].all()) > 0, true, "each member has some")
		sender.Close()
	},
	"headers": func() {
		client, subject := connect(), nuid.Next()
		subscription := got(client.SubscribeSync(subject))
		sent := nats.NewMsg(subject)
		sent.Data = []byte("x")
		sent.Header = nats.Header{"Colour": {"red", "blue"}, "n": {"1:2"}}
		must(client.PublishMsg(sent))
		message := got(subscription.NextMsg(wait))
		same(message.Header, sent.Header, "headers")
		same(string(message.Data), "x", "payload")
		client.Close()
	},
	"request": func() {
		for _, options := range [][]nats.Option{{}, {nats.UseOldRequestStyle()}} {
			client, subject, asking := connect(options...), nuid.Next(), sync.WaitGroup{}
			got(client.Subscribe(subject, func(message *nats.Msg) {
				_ = message.Respond(append([]byte("re: "), message.Data...))
			}))
			answers := make([]string, 50)
			for place, number := range numbers(50) {
				asking.Go(func() {
					if answer, err := client.Request(subject, []byte(number), wait); err == nil {
						answers[place] = string(answer.Data)
					}
				})
			}
			asking.Wait()
			for place, number := range numbers(50) {
				same(answers[place], "re: "+number, "answer")
			}
			client.Close()
		}
	},
	"no_responders": func() {
		client, started := connect(), time.Now()
		_, err := client.Request(nuid.Next(), nil, wait)
		same(errors.Is(err, nats.ErrNoResponders), true, "no responders")
		same(time.Since(started) < wait/2, true, "at once")
		client.Close()
	},
	"request_many": func() { put(map[string]any{"not_offered": "only in another package"}) },
	"unsubscribe": func() {
		client, subject, found := connect(), nuid.Next(), seen{}
		limited := got(client.Subscribe(subject, found.add))
		must(limited.AutoUnsubscribe(3))
		witness := got(client.SubscribeSync(subject))
		for _, number := range numbers(10) {
			must(client.Publish(subject, []byte(number)))
		}
		same(texts(witness, 10), numbers(10), "the other")
		must(client.Flush())
		same(found.all(), numbers(3), "limited")
		client.Close()
	},
	"drain": func() {
		closed, sender, found, subject := make(chan bool), connect(), seen{}, nuid.Next()
		reader := connect(nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
		got(reader.Subscribe(subject, func(message *nats.Msg) {
			time.Sleep(time.Millisecond)
			found.add(message)
		}))
		must(reader.Flush())
		for _, number := range numbers(300) {
			must(sender.Publish(subject, []byte(number)))
		}
		must(sender.Flush())
		must(reader.Flush())
		must(reader.Drain())
		select {
		case <-closed:
		case <-time.After(time.Minute):
			panic(errors.New("drain: not within a minute"))
		}
		same(found.all(), numbers(300), "drained")
		sender.Close()
	},
	"max_payload": func() {
		client, subject := connect(), nuid.Next()
		subscription := got(client.SubscribeSync(subject))
		largest := client.MaxPayload()
		same(client.Publish(subject, make([]byte, largest+1)), nats.ErrMaxPayload, "too large")
		must(client.Publish(subject, make([]byte, largest)))
		same(int64(len(got(subscription.NextMsg(wait)).Data)), largest, "the largest one")
		client.Close()
	},
	"reconnect": func() { survive(0) },
	"failover":  func() { survive(1) },
	"pubacks": func() {
		client, name, ctx := connect(), nuid.Next(), context.Background()
		js := got(jetstream.New(client))
		got(js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}))
		var sent []jetstream.PubAckFuture
		for _, number := range numbers(200) {
			sent = append(sent, got(js.PublishAsync(name+".x", []byte(number))))
		}
		for place, future := range sent {
			select {
			case ack := <-future.Ok():
				same(ack.Sequence, uint64(place+1), "sequence")
				same(ack.Stream, name, "stream")
			case err := <-future.Err():
				panic(err)
			case <-time.After(wait):
				panic(errors.New("no PubAck"))
			}
		}
		first := got(js.Publish(ctx, name+".x", nil, jetstream.WithMsgID("once")))
		second := got(js.Publish(ctx, name+".x", nil, jetstream.WithMsgID("once")))
		same([]any{first.Sequence, first.Duplicate}, []any{uint64(201), false}, "the first")
		same([]any{second.Sequence, second.Duplicate}, []any{uint64(201), true}, "the second")
		must(js.DeleteStream(ctx, name))
		client.Close()
	},
	"streams": func() {
		client, name, ctx := connect(), nuid.Next(), context.Background()
		js := got(jetstream.New(client))
		config := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}
		stream := got(js.CreateStream(ctx, config))
		for _, number := range numbers(5) {
			got(js.Publish(ctx, name+"."+number, []byte(number)))
		}
		same(got(stream.Info(ctx)).State.Msgs, uint64(5), "messages")
		same(string(got(stream.GetMsg(ctx, 2)).Data), "1", "the second")
		listed, names := js.StreamNames(ctx), []string{}
		for one := range listed.Name() {
			names = append(names, one)
		}
		must(listed.Err())
		same(slices.Contains(names, name), true, "listed")
		must(stream.Purge(ctx))
		same(got(stream.Info(ctx)).State.Msgs, uint64(0), "purged")
		must(js.DeleteStream(ctx, name))
		_, err := js.Stream(ctx, name)
		same(errors.Is(err, jetstream.ErrStreamNotFound), true, "deleted")
		client.Close()
	},
	"key_value": func() {
		client, name, ctx := connect(), nuid.Next(), context.Background()
		js := got(jetstream.New(client))
		bucket := got(js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: name, History: 5}))
		first := got(bucket.PutString(ctx, "colour", "red"))
		same(string(got(bucket.Get(ctx, "colour")).Value()), "red", "value")
		second := got(bucket.Update(ctx, "colour", []byte("blue"), first))
		same(got(bucket.Get(ctx, "colour")).Revision(), second, "revision")
		_, err := bucket.Update(ctx, "colour", []byte("green"), first)
		same(errors.Is(err, jetstream.ErrKeyExists), true, "an old revision")
		must(bucket.Delete(ctx, "colour"))
		_, err = bucket.Get(ctx, "colour")
		same(errors.Is(err, jetstream.ErrKeyNotFound), true, "deleted")
		must(js.DeleteKeyValue(ctx, name))
		client.Close()
	},
}

func main() {
	servers = os.Args[1]
	verb := os.Args[2]
	if verb == "version" {
		put(map[string]any{"version": nats.Version})
		return
	}
	defer func() {
		if failure := recover(); failure != nil {
			put(map[string]any{"error": fmt.Sprint(failure)})
		}
	}()
	verbs[verb]()
	put(map[string]any{"done": true})
}
