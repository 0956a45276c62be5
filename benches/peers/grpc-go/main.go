// The grpc-go contestant of the benchmark: reads one JSON command per line from stdin, answers each with one JSON
// line on stdout, and ends at EOF. The contract is in ../README.md.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	target := flag.String("target", "", "xds:///name or ip:port")
	keepalive := flag.Int("keepalive-ms", 0, "PINGs after so many milliseconds (grpc-go makes it 10 s at least), and as long for the answer")
	flag.Parse()
	if *target == "" {
		fmt.Fprintln(os.Stderr, "--target is missing")
		os.Exit(2)
	}
	if err := serve(&contestant{target: *target, keepalive: time.Duration(*keepalive) * time.Millisecond}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve answers commands in order until stdin ends.
func serve(contestant *contestant) error {
	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if err := answers.Encode(contestant.answer(lines.Bytes())); err != nil {
			return err
		}
	}
	return lines.Err()
}

// answer runs one command; a command that cannot be run is answered with what is wrong.
func (c *contestant) answer(line []byte) any {
	command := command{TimeoutS: 30, TimeoutMs: 1000, Payload: 32}
	if err := json.Unmarshal(line, &command); err != nil {
		return failure{fmt.Sprintf("not a command: %v", err)}
	}
	answer, err := c.run(&command)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", command.Cmd, err)
		return failure{err.Error()}
	}
	return answer
}

func (c *contestant) run(command *command) (any, error) {
	switch command.Cmd {
	case "first":
		if err := c.first(seconds(command.TimeoutS)); err != nil {
			return refusal{Error: err.Error()}, nil
		}
		return done{true}, nil
	case "calls":
		return c.calls(command.Concurrency, seconds(command.Seconds), command.Payload)
	case "stream":
		return c.stream(command.Concurrency, seconds(command.Seconds), command.Payload)
	case "flood":
		return c.flood(command.Direction, command.Concurrency, seconds(command.Seconds), command.Payload, command.Messages)
	case "load":
		return c.startLoad(command.Concurrency, milliseconds(command.TimeoutMs), command.Payload)
	case "mark":
		return c.mark()
	case "stop":
		return c.stopLoad()
	case "channels":
		return c.addChannels(command.Count, seconds(command.TimeoutS))
	default:
		return nil, fmt.Errorf("unknown command %q", command.Cmd)
	}
}

// command is the union of the fields of all commands.
type command struct {
	Cmd         string  `json:"cmd"`
	Concurrency uint    `json:"concurrency"`
	Count       uint    `json:"count"`
	Direction   string  `json:"direction"`
	Messages    uint64  `json:"messages"`
	Payload     uint    `json:"payload"`
	Seconds     float64 `json:"seconds"`
	TimeoutMs   float64 `json:"timeout_ms"`
	TimeoutS    float64 `json:"timeout_s"`
}

type done struct {
	OK bool `json:"ok"`
}

type refusal struct {
	OK    bool   `json:"ok"`
	Error string `json:"error"`
}

type failure struct {
	Error string `json:"error"`
}
