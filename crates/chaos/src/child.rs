//! Child processes: the same program in a different role. They end with this process, even if it is killed.

use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::sync::{mpsc, oneshot};

/// A child that is killed when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Sends to the writer thread: a stopped child does not read, and must not block its parent.
    commands: std::sync::mpsc::Sender<String>,
}

impl Process {
    /// Starts this program with these arguments. After the child has printed `ready`, its lines go to `lines`, followed
    /// by `None` when it ends.
    ///
    /// Must be called by the main thread: the kernel ends a child with the thread that started it.
    pub(crate) fn start(
        arguments: &[String],
        lines: impl Fn(Option<String>) + Send + 'static,
    ) -> io::Result<(Self, oneshot::Receiver<()>)> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("--parent")
            .arg(std::process::id().to_string())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (commands, inbox) = std::sync::mpsc::channel::<String>();
        if let Some(mut stdin) = child.stdin.take() {
            std::thread::spawn(move || {
                // A child that is gone does not read.
                while inbox.recv().is_ok_and(|line| writeln!(stdin, "{line}").is_ok()) {}
            });
        }
        let (ready, is_ready) = oneshot::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut said = BufReader::new(stdout).lines().map_while(Result::ok);
                if said.next().as_deref() == Some("ready") && ready.send(()).is_ok() {
                    said.for_each(|line| lines(Some(line)));
                }
                lines(None);
            });
        }
        Ok((Self { child, commands }, is_ready))
    }

    /// Writes a line to it. A child that is gone does not read it.
    pub(crate) fn tell(&self, line: &str) {
        let _ = self.commands.send(line.to_owned());
    }

    /// SIGSTOP.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// SIGCONT.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGKILL; returns when the child is gone.
    pub(crate) fn kill(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn signal(&self, signal: Signal) {
        // The child is not reaped while this value lives, so its id is not reused.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Must be called first in a child: ends it when its parent ends.
pub(crate) fn end_with_parent(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before.
    match getppid() {
        Some(now) if now.as_raw_nonzero().get().unsigned_abs() == parent => Ok(()),
        _ => Err(io::Error::other("the parent process has ended")),
    }
}

/// The lines of standard input, until its end.
pub(crate) fn stdin_lines() -> mpsc::UnboundedReceiver<String> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Writes a line to standard output, which the parent reads.
pub(crate) fn say(line: &str) {
    // If the parent is gone, this process ends too.
    let _ = writeln!(io::stdout().lock(), "{line}");
}
