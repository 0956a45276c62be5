package main

import (
	"math"
	"testing"
	"time"
)

func TestEveryLatencyIsKeptWithinOnePercent(t *testing.T) {
	for value := time.Duration(1); value < 2*time.Minute; value += 1 + value/1000 {
		var h histogram
		h.record(value)
		kept := h.quantile(0.5)
		if off := math.Abs(float64(kept-value)) / float64(value); off > 0.01 {
			t.Fatalf("%d ns is kept as %d ns, which is off by %.2f%%", value, kept, off*100)
		}
	}
}

func TestQuantilesAreTakenOverAllCallers(t *testing.T) {
	var fast, slow, all histogram
	for range 98 {
		fast.record(40)
	}
	slow.record(50)
	slow.record(60)
	all.add(&fast)
	all.add(&slow)
	if all.total != 100 || all.quantile(0.5) != 40 || all.quantile(0.99) != 60 {
		t.Fatalf("of %d: p50 %v, p99 %v", all.total, all.quantile(0.5), all.quantile(0.99))
	}
}

func TestWhatIsTooLongStillCounts(t *testing.T) {
	var h histogram
	h.record(time.Hour)
	if kept := h.quantile(0.99); kept < 2*time.Minute {
		t.Fatalf("an hour is kept as %v", kept)
	}
}
