//! A child process that answers each line with a line.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::clock;
use crate::service::BoxError;

/// No command takes longer, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(90);

/// A child process; killed when dropped.
pub(crate) struct Process {
    child: Child,
    pid: u32,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Result<Self, BoxError> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().ok_or("the process ended at once")?;
        let stdin = child.stdin.take().ok_or("no standard input")?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        Ok(Self { child, pid, stdin, stdout: BufReader::new(stdout).lines() })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Writes a line and waits for the response.
    pub(crate) async fn ask(&mut self, line: &str) -> Result<Value, BoxError> {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await?;
        self.hear().await
    }

    /// Waits for a line.
    pub(crate) async fn hear(&mut self) -> Result<Value, BoxError> {
        let line = tokio::time::timeout(PATIENCE, self.stdout.next_line()).await;
        let line = line.map_err(|_| "no response in time")??.ok_or("the process ended")?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Ends it, and waits until it is gone.
    pub(crate) async fn end(mut self) {
        let _ = self.child.kill().await;
    }
}

/// Waits until the processes are idle, five seconds at most.
pub(crate) async fn settle(pids: &[u32]) {
    const QUIET: f64 = 0.0004;
    let used = || pids.iter().map(|pid| clock::cpu_seconds(*pid)).sum::<f64>();
    let mut before = used();
    let mut quiet = 0;
    for _ in 0..250 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = used();
        quiet = if now - before < QUIET { quiet + 1 } else { 0 };
        before = now;
        if quiet == 2 {
            return;
        }
    }
}

/// The anonymous memory of a process in bytes: heap and stacks, without code.
pub(crate) fn memory(pid: u32) -> Result<f64, BoxError> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find(|line| line.starts_with("Anonymous:")).ok_or("no line Anonymous")?;
    let kib: f64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
    Ok(kib * 1024.0)
}
