package main

import (
	"bytes"
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/keepalive"
	_ "google.golang.org/grpc/xds" // the xds:/// resolver and its policies
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	unaryMethod  = "/bench.Bench/Unary"
	streamMethod = "/bench.Bench/Stream"
)

// contestant is the state between commands. Nothing exists until a command needs it.
type contestant struct {
	target    string
	keepalive time.Duration // none if zero
	channel   *grpc.ClientConn
	others    []*grpc.ClientConn
	load      *load
}

// conn is the main channel, created by the first command that needs it.
func (c *contestant) conn() (*grpc.ClientConn, error) {
	if c.channel == nil {
		channel, err := c.dial()
		if err != nil {
			return nil, err
		}
		c.channel = channel
	}
	return c.channel, nil
}

func (c *contestant) dial() (*grpc.ClientConn, error) {
	credentials := insecure.NewCredentials()
	if strings.HasPrefix(c.target, "xds:") {
		var err error
		credentials, err = xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: credentials})
		if err != nil {
			return nil, err
		}
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(credentials)}
	if c.keepalive > 0 {
		parameters := keepalive.ClientParameters{Time: c.keepalive, Timeout: c.keepalive}
		options = append(options, grpc.WithKeepaliveParams(parameters))
	}
	return grpc.NewClient(c.target, options...)
}

// first makes the channel where there is none, and one RPC through it.
func (c *contestant) first(timeout time.Duration) error {
	conn, err := c.conn()
	if err != nil {
		return err
	}
	return connect(conn, timeout)
}

// addChannels makes further channels and connects each. grpc-go shares no connection between channels; it does share
// the xDS client among channels of the same target, and its public API has no way to avoid that.
func (c *contestant) addChannels(count uint, timeout time.Duration) (any, error) {
	for range count {
		channel, err := c.dial()
		if err != nil {
			return nil, err
		}
		c.others = append(c.others, channel)
		if err := connect(channel, timeout); err != nil {
			return nil, err
		}
	}
	return done{true}, nil
}

// connect makes one RPC that waits until the channel is ready.
func connect(conn *grpc.ClientConn, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var response wrapperspb.BytesValue
	return conn.Invoke(ctx, unaryMethod, request(32), &response, grpc.WaitForReady(true))
}

func request(payload uint) *wrapperspb.BytesValue {
	return wrapperspb.Bytes(make([]byte, payload))
}

// backend is the name at the start of a response: all before the first NUL.
func backend(response *wrapperspb.BytesValue) []byte {
	name, _, _ := bytes.Cut(response.Value, []byte{0})
	return name
}

func seconds(count float64) time.Duration {
	return time.Duration(count * float64(time.Second))
}

func milliseconds(count float64) time.Duration {
	return time.Duration(count * float64(time.Millisecond))
}
