package main

import (
	"math/bits"
	"time"
)

const (
	// 64 equal buckets per power of two: the middle of a bucket is at most 1/128 from any value in it.
	bucketBits = 6
	perOctave  = 1 << bucketBits
	// Up to 2^37 ns, more than two minutes; longer ones count in the last bucket.
	octaves = 37 - bucketBits
	buckets = (octaves + 1) * perOctave
)

// histogram counts latencies with a relative error below 1%.
type histogram struct {
	total  uint64
	counts [buckets]uint32
}

func (h *histogram) record(latency time.Duration) {
	h.total++
	h.counts[bucketOf(uint64(max(latency, 0)))]++
}

func (h *histogram) add(other *histogram) {
	h.total += other.total
	for bucket, count := range other.counts {
		h.counts[bucket] += count
	}
}

// quantile is the latency that the given part of all recorded ones did not exceed; 0 if there is none.
func (h *histogram) quantile(part float64) time.Duration {
	rank := uint64(part * float64(h.total))
	var seen uint64
	for bucket, count := range h.counts {
		seen += uint64(count)
		if seen > rank {
			return middleOf(bucket)
		}
	}
	return 0
}

// bucketOf keeps the highest bit of a value (as the octave) and the bucketBits below it.
func bucketOf(value uint64) int {
	if value < perOctave {
		return int(value)
	}
	shift := bits.Len64(value) - bucketBits - 1
	bucket := shift<<bucketBits + int(value>>shift)
	return min(bucket, buckets-1)
}

func middleOf(bucket int) time.Duration {
	if bucket < 2*perOctave {
		return time.Duration(bucket)
	}
	shift := bucket>>bucketBits - 1
	low := (bucket - shift<<bucketBits) << shift
	return time.Duration(low + 1<<(shift-1))
}
