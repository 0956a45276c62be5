//! Loom models of the counter of tasks.

use proxyless_sans_io::sync::check;
use proxyless_sans_io::sync::loom::future::block_on;
use proxyless_sans_io::sync::loom::thread;

use super::*;

/// Whoever waits for the end of all tasks hears of it, whenever the last one ends.
#[test]
fn the_end_of_the_last_task_is_heard() {
    check(3, || {
        let tasks = TaskCounter::default();
        let ends = [(); 2].map(|()| {
            let task = tasks.counted(async {});
            thread::spawn(move || drop(task))
        });
        block_on(tasks.finished());
        assert_eq!(tasks.live(), 0);
        ends.into_iter().for_each(|end| end.join().unwrap());
    });
}
