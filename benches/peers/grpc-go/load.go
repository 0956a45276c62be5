package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// pause after a failed RPC, so that a dead backend is not asked as fast as it can refuse.
const pause = time.Millisecond

var errNoLoad = errors.New("no load is running")

// load is RPCs in the background between the commands load and stop.
type load struct {
	cancel  context.CancelFunc
	callers []*loadCaller
	group   sync.WaitGroup
}

// loadCaller has a tally of its own, so that callers do not wait for one another.
type loadCaller struct {
	mutex sync.Mutex
	tally *tally
}

// tally is what happened since the last mark, and the answer to the next one.
type tally struct {
	OK       uint64            `json:"ok"`
	Failed   uint64            `json:"failed"`
	Codes    map[string]uint64 `json:"codes"`
	Backends map[string]*span  `json:"backends"`
}

// span says how many RPCs a backend answered, and when the first and the last of them completed.
type span struct {
	Count   uint64 `json:"count"`
	FirstNs int64  `json:"first_ns"`
	LastNs  int64  `json:"last_ns"`
}

func (c *contestant) startLoad(concurrency uint, timeout time.Duration, payload uint) (any, error) {
	if c.load != nil {
		return nil, errors.New("a load is already running")
	}
	conn, err := c.conn()
	if err != nil {
		return nil, err
	}
	clock, err := startClock()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.load = &load{cancel: cancel}
	for range concurrency {
		caller := &loadCaller{tally: newTally()}
		c.load.callers = append(c.load.callers, caller)
		c.load.group.Go(func() { caller.run(ctx, conn, clock, timeout, payload) })
	}
	return done{true}, nil
}

func (c *contestant) mark() (any, error) {
	if c.load == nil {
		return nil, errNoLoad
	}
	return c.load.take(), nil
}

// stopLoad lets RPCs under way end by themselves, so that none is counted as cancelled.
func (c *contestant) stopLoad() (any, error) {
	if c.load == nil {
		return nil, errNoLoad
	}
	c.load.cancel()
	c.load.group.Wait()
	tally := c.load.take()
	c.load = nil
	return tally, nil
}

// take returns what all callers counted, and lets them count anew.
func (l *load) take() *tally {
	sum := newTally()
	for _, caller := range l.callers {
		caller.mutex.Lock()
		part := caller.tally
		caller.tally = newTally()
		caller.mutex.Unlock()
		sum.add(part)
	}
	return sum
}

// run makes RPCs until stopped is done.
func (l *loadCaller) run(stopped context.Context, conn *grpc.ClientConn, clock clock, timeout time.Duration, payload uint) {
	request := request(payload)
	response := new(wrapperspb.BytesValue)
	for stopped.Err() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		err := conn.Invoke(ctx, unaryMethod, request, response)
		now := clock.now()
		cancel()
		l.mutex.Lock()
		if err == nil {
			l.tally.succeeded(backend(response), now)
		} else {
			l.tally.failed(status.Code(err))
		}
		l.mutex.Unlock()
		if err != nil {
			time.Sleep(pause)
		}
	}
}

func newTally() *tally {
	return &tally{Codes: map[string]uint64{}, Backends: map[string]*span{}}
}

func (t *tally) succeeded(backend []byte, now int64) {
	t.OK++
	// This form of look-up does not copy the name.
	of := t.Backends[string(backend)]
	if of == nil {
		of = &span{FirstNs: now}
		t.Backends[string(backend)] = of
	}
	of.Count++
	of.LastNs = now
}

func (t *tally) failed(code codes.Code) {
	t.Failed++
	t.Codes[codeName(code)]++
}

func (t *tally) add(other *tally) {
	t.OK += other.OK
	t.Failed += other.Failed
	for code, count := range other.Codes {
		t.Codes[code] += count
	}
	for name, part := range other.Backends {
		whole := t.Backends[name]
		if whole == nil {
			t.Backends[name] = part
			continue
		}
		whole.Count += part.Count
		whole.FirstNs = min(whole.FirstNs, part.FirstNs)
		whole.LastNs = max(whole.LastNs, part.LastNs)
	}
}

// codeName is the name that the gRPC specification gives a code; codes.Code.String has another spelling.
func codeName(code codes.Code) string {
	names := [...]string{
		"OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
		"PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
		"INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
	}
	if int(code) < len(names) {
		return names[code]
	}
	return fmt.Sprintf("CODE_%d", code)
}

// clock reads CLOCK_MONOTONIC, which all processes of a machine share. Go's own monotonic time is the same clock with
// a hidden origin; asking the kernel for that origin once spares a system call per RPC.
type clock struct {
	start   time.Time
	startNs int64
}

func startClock() (clock, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return clock{}, err
	}
	return clock{start: time.Now(), startNs: now.Nano()}, nil
}

func (c clock) now() int64 {
	return c.startNs + int64(time.Since(c.start))
}
