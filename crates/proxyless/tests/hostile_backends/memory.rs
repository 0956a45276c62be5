//! Counts the memory of the whole process, including servers and control planes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grown(by: usize) {
    PEAK.fetch_max(LIVE.fetch_add(by, Relaxed) + by, Relaxed);
}

// SAFETY: everything is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grown(size);
        LIVE.fetch_sub(layout.size(), Relaxed);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that are allocated now.
pub(crate) fn live() -> usize {
    LIVE.load(Relaxed)
}

/// A measurement from here on.
pub(crate) struct Measure {
    before: usize,
}

impl Measure {
    pub(crate) fn start() -> Self {
        let before = live();
        PEAK.store(before, Relaxed);
        Self { before }
    }

    /// The peak of additional memory.
    pub(crate) fn peak(&self) -> usize {
        PEAK.load(Relaxed).saturating_sub(self.before)
    }

    /// Waits until at most `slack` bytes of additional memory remain.
    pub(crate) async fn returned(&self, slack: usize) -> Result<(), String> {
        let given_back = async {
            while live().saturating_sub(self.before) > slack {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let left = || format!("{} bytes are not given back", live().saturating_sub(self.before));
        tokio::time::timeout(crate::common::PATIENCE, given_back).await.map_err(|_| left())
    }
}
