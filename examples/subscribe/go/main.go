// Prints every admission once, whatever is restarted meanwhile: this program, Muster, NATS.
//
// The consumer is durable: NATS remembers what was acknowledged. What comes twice all the same is told by its ce-id,
// which is kept in a file together with what was done. Settings are environment variables, all with a default.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const admitted = "dev.muster.workload.admitted.v1"

type event struct {
	Queue    string `json:"queue"`
	Workload struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"workload"`
}

type record struct {
	ID    string `json:"id"`
	Job   string `json:"job"`
	Queue string `json:"queue"`
}

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// doneBefore reads the ce-ids of what was done.
func doneBefore(path string) map[string]bool {
	done := map[string]bool{}
	file, err := os.Open(path)
	if err != nil {
		return done
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var found record
		if json.Unmarshal(lines.Bytes(), &found) == nil {
			done[found.ID] = true
		}
	}
	return done
}

func connect(name string) (*nats.Conn, error) {
	options := []nats.Option{nats.Name(name), nats.MaxReconnects(-1)}
	if seed := os.Getenv("NKEY_FILE"); seed != "" { // with NKEY_FILE, CA_FILE and API_PREFIX you sign in to production
		signer, err := nats.NkeyOptionFromSeed(seed)
		if err != nil {
			return nil, err
		}
		options = append(options, signer, nats.CustomInboxPrefix("_INBOX_"+name))
	}
	if authority := os.Getenv("CA_FILE"); authority != "" {
		options = append(options, nats.RootCAs(authority))
	}
	return nats.Connect(setting("NATS_URL", nats.DefaultURL), options...)
}

func run() error {
	name, path := setting("READER", "reader"), setting("DONE", "admissions.jsonl")
	connection, err := connect(name)
	if err != nil {
		return err
	}
	defer connection.Close()
	stream, err := jetstream.NewWithAPIPrefix(connection, setting("API_PREFIX", "$JS.API"))
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	consumer, err := stream.CreateOrUpdateConsumer(starting, "MUSTER_PUB", jetstream.ConsumerConfig{
		Durable:       name,
		FilterSubject: setting("SUBJECT", "muster.pub.v1.>"),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       30 * time.Second,
	})
	if err != nil {
		return err
	}
	done := doneBefore(path)
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		message, err := messages.Next()
		if err != nil { // NATS is away: what was not acknowledged comes again
			log.Print(err)
			time.Sleep(time.Second)
			continue
		}
		if err := handle(message, done, file); err != nil {
			return err
		}
		if err := message.Ack(); err != nil {
			log.Print(err)
		}
	}
}

func handle(message jetstream.Msg, done map[string]bool, file *os.File) error {
	id := message.Headers().Get("ce-id")
	if message.Headers().Get("ce-type") != admitted || done[id] {
		return nil
	}
	var found event
	if err := json.Unmarshal(message.Data(), &found); err != nil {
		return err
	}
	line := record{id, found.Workload.Namespace + "/" + found.Workload.Name, found.Queue}
	if err := json.NewEncoder(file).Encode(line); err != nil {
		return err
	}
	done[id] = true
	fmt.Println(line.ID, line.Job, line.Queue)
	return nil
}

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}
