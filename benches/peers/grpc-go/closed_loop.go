package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// grace is how long after the end of a measurement an RPC may still take before it is cancelled.
const grace = 10 * time.Second

type callsAnswer struct {
	Rpcs    uint64  `json:"rpcs"`
	Failed  uint64  `json:"failed"`
	Seconds float64 `json:"seconds"`
	P50us   float64 `json:"p50_us"`
	P99us   float64 `json:"p99_us"`
}

// calls runs unary RPCs in a closed loop: as many callers as asked for, each one RPC after the other.
func (c *contestant) calls(concurrency uint, length time.Duration, payload uint) (any, error) {
	conn, err := c.conn()
	if err != nil {
		return nil, err
	}
	latencies := make([]histogram, concurrency)
	failed := make([]uint64, concurrency)
	elapsed := closedLoop(concurrency, length, func(ctx context.Context, caller uint, end time.Time) {
		request := request(payload)
		response := new(wrapperspb.BytesValue)
		for begin := time.Now(); begin.Before(end); {
			err := conn.Invoke(ctx, unaryMethod, request, response)
			now := time.Now()
			if err == nil {
				latencies[caller].record(now.Sub(begin))
			} else {
				failed[caller]++
			}
			begin = now
		}
	})
	var all histogram
	answer := callsAnswer{Seconds: elapsed.Seconds()}
	for caller := range latencies {
		all.add(&latencies[caller])
		answer.Failed += failed[caller]
	}
	answer.Rpcs = all.total
	answer.P50us = all.quantile(0.50).Seconds() * 1e6
	answer.P99us = all.quantile(0.99).Seconds() * 1e6
	return answer, nil
}

type streamAnswer struct {
	Messages uint64  `json:"messages"`
	Seconds  float64 `json:"seconds"`
}

// stream plays ping-pong on bidirectional streams; a message counts when its answer has come back.
func (c *contestant) stream(concurrency uint, length time.Duration, payload uint) (any, error) {
	conn, err := c.conn()
	if err != nil {
		return nil, err
	}
	messages := make([]uint64, concurrency)
	failures := make([]error, concurrency)
	elapsed := closedLoop(concurrency, length, func(ctx context.Context, caller uint, end time.Time) {
		messages[caller], failures[caller] = pingPong(ctx, conn, end, payload)
	})
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	answer := streamAnswer{Seconds: elapsed.Seconds()}
	for _, count := range messages {
		answer.Messages += count
	}
	return answer, nil
}

func pingPong(ctx context.Context, conn *grpc.ClientConn, end time.Time, payload uint) (count uint64, err error) {
	// Leaving ends the stream, also after a failure.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	description := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := conn.NewStream(ctx, description, streamMethod)
	if err != nil {
		return 0, err
	}
	request := request(payload)
	response := new(wrapperspb.BytesValue)
	for ; time.Now().Before(end); count++ {
		// io.EOF from SendMsg says that the stream is over; RecvMsg then says why.
		_ = stream.SendMsg(request)
		if err := stream.RecvMsg(response); err != nil {
			return count, err
		}
	}
	return count, stream.CloseSend()
}

// closedLoop runs the callers until their common end and returns how long that took in fact.
func closedLoop(callers uint, length time.Duration, run func(ctx context.Context, caller uint, end time.Time)) time.Duration {
	all, cancel := context.WithTimeout(context.Background(), length+grace)
	defer cancel()
	begin := time.Now()
	var group sync.WaitGroup
	for caller := range callers {
		group.Go(func() {
			// A context of its own and without a deadline: callers share no lock, and no RPC carries a timeout.
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			defer context.AfterFunc(all, cancel)()
			run(ctx, caller, begin.Add(length))
		})
	}
	group.Wait()
	return time.Since(begin)
}
