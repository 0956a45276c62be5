package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	sinkMethod   = "/bench.Bench/Sink"
	sourceMethod = "/bench.Bench/Source"
)

// flood sends messages in one direction on each stream, for a time or up to a number of messages.
func (c *contestant) flood(direction string, concurrency uint, length time.Duration, payload uint, messages uint64) (any, error) {
	conn, err := c.conn()
	if err != nil {
		return nil, err
	}
	if messages == 0 {
		messages = math.MaxUint64
	}
	run := floodUp
	switch direction {
	case "up":
	case "down":
		run = floodDown
	default:
		return nil, fmt.Errorf("unknown direction %q", direction)
	}
	counts := make([]uint64, concurrency)
	failures := make([]error, concurrency)
	elapsed := closedLoop(concurrency, length, func(ctx context.Context, caller uint, end time.Time) {
		counts[caller], failures[caller] = run(ctx, conn, end, payload, messages)
	})
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	answer := streamAnswer{Seconds: elapsed.Seconds()}
	for _, count := range counts {
		answer.Messages += count
	}
	return answer, nil
}

// floodUp sends, and waits for the response that says that the server has read everything.
func floodUp(ctx context.Context, conn *grpc.ClientConn, end time.Time, payload uint, messages uint64) (count uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, sinkMethod)
	if err != nil {
		return 0, err
	}
	request := request(payload)
	for ; count < messages && time.Now().Before(end); count++ {
		if stream.SendMsg(request) != nil {
			// io.EOF says that the stream is over; RecvMsg then says why.
			break
		}
	}
	if err := stream.CloseSend(); err != nil {
		return count, err
	}
	return count, stream.RecvMsg(new(wrapperspb.BytesValue))
}

// floodDown reads, and cancels the stream at the end.
func floodDown(ctx context.Context, conn *grpc.ClientConn, end time.Time, payload uint, messages uint64) (count uint64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, sourceMethod)
	if err != nil {
		return 0, err
	}
	if err := stream.SendMsg(wrapperspb.Bytes([]byte(strconv.FormatUint(uint64(payload), 10)))); err != nil {
		return 0, err
	}
	if err := stream.CloseSend(); err != nil {
		return 0, err
	}
	response := new(wrapperspb.BytesValue)
	for ; count < messages && time.Now().Before(end); count++ {
		if err := stream.RecvMsg(response); err != nil {
			return count, err
		}
	}
	return count, nil
}
