//! The memory of the process, and its peak.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::AtomicIsize;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

struct Counting;

static HELD: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

fn add(bytes: isize) {
    let held = HELD.fetch_add(bytes, Relaxed) + bytes;
    if bytes > 0 {
        PEAK.fetch_max(held, Relaxed);
    }
}

// SAFETY: everything is forwarded to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size().cast_signed());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size().cast_signed());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Both copies exist while it is moved.
        add(new_size.cast_signed());
        let moved = unsafe { System.realloc(pointer, layout, new_size) };
        add(-layout.size().cast_signed());
        moved
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-layout.size().cast_signed());
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Tests that measure memory run alone.
static RUNNING: RwLock<()> = RwLock::const_new(());

/// Prevents measurements while this test runs.
pub(crate) async fn unmeasured() -> RwLockReadGuard<'static, ()> {
    RUNNING.read().await
}

/// The additional memory of this test, including its servers.
pub(crate) struct Measured {
    start: isize,
    _alone: RwLockWriteGuard<'static, ()>,
}

pub(crate) async fn measured() -> Measured {
    Measured { _alone: RUNNING.write().await, start: 0 }
}

impl Measured {
    /// Begins to measure.
    pub(crate) fn begin(&mut self) {
        self.start = HELD.load(Relaxed);
        PEAK.store(self.start, Relaxed);
    }

    /// Asserts the peak and the current additional memory, in MiB.
    #[track_caller]
    pub(crate) fn expect(&self, what: &str, peak: isize, now: isize) {
        let mib = |bytes: isize| (bytes - self.start) as f64 / f64::from(1 << 20);
        let (peaked, held) = (mib(PEAK.load(Relaxed)), mib(HELD.load(Relaxed)));
        assert!(peaked < peak as f64, "{what}: {peaked:.1} MiB at most, the bound is {peak}");
        assert!(held < now as f64, "{what}: {held:.1} MiB are left, the bound is {now}");
        if std::env::var_os("HOSTILE_REPORT").is_some() {
            let report = format!("{what}: at most {peaked:.1} MiB, left {held:.1} MiB\n");
            // Where a figure is wanted for the documentation.
            let _ = std::io::Write::write_all(&mut std::io::stderr(), report.as_bytes());
        }
    }
}
