//! Certificate files that are read again and again: the plugin `file_watcher` (gRFC A29).
//!
//! A certificate and its key are only ever used as a matching pair. A file that cannot be used leaves the last good content
//! in use, and is logged once until the problem changes.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use proxyless_xds::bootstrap::{CertificateFiles, IdentityFiles, RootsFile};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use tokio::sync::watch;
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::sleep;

use crate::file::{self, FileError};
use crate::identity::Identity;
use crate::roots::Roots;
use crate::spiffe::TrustBundleMap;
use crate::trust::Trust;

/// Shorter intervals count as this one, as in other gRPC implementations.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// Watches the files of one configuration while it exists.
pub struct FileWatcher {
    files: CertificateFiles,
    crypto: Arc<CryptoProvider>,
    clock: Arc<dyn TimeProvider>,
    state: watch::Sender<State>,
    /// The task that reads the files. It ends with its runtime, and is started again by the next user.
    task: Mutex<Option<AbortHandle>>,
    itself: Weak<Self>,
}

/// The outcome of the reads so far.
#[derive(Clone, Default)]
struct State {
    reads: u64,
    identity: Slot<Identity>,
    trust: Slot<Trust>,
}

/// The last good content of some files, and the latest problem with them.
struct Slot<T> {
    good: Option<Arc<T>>,
    problem: Option<Arc<FileError>>,
    /// The hash of the files' content that `good` was made of.
    hash: u64,
}

impl FileWatcher {
    /// Watches files. The task that reads them runs in the runtimes of its users.
    #[must_use]
    pub fn new(
        files: CertificateFiles,
        crypto: Arc<CryptoProvider>,
        clock: Arc<dyn TimeProvider>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|itself| Self {
            files,
            crypto,
            clock,
            state: watch::Sender::default(),
            task: Mutex::default(),
            itself: itself.clone(),
        })
    }

    /// The client's certificate and key, after the first read of the files; `None` if there are no files for them.
    ///
    /// # Errors
    ///
    /// If the files have never been good: the latest problem.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn identity(&self) -> Result<Option<Arc<Identity>>, Arc<FileError>> {
        self.read().await.identity.outcome()
    }

    /// The certificates that servers are verified with, after the first read of the files; `None` if there is no file for
    /// them.
    ///
    /// # Errors
    ///
    /// If the file has never been good: the latest problem.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn trust(&self) -> Result<Option<Arc<Trust>>, Arc<FileError>> {
        self.read().await.trust.outcome()
    }

    /// The latest problems with the files, whether older content is in use or not.
    #[must_use]
    pub fn problems(&self) -> Vec<Arc<FileError>> {
        let state = self.state.borrow();
        state.identity.problem.iter().chain(&state.trust.problem).cloned().collect()
    }

    /// The number of completed reads, for tests.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.state.borrow().reads
    }

    /// Waits until this many reads are completed.
    pub async fn wait_for_reads(&self, reads: u64) {
        self.ensure_task();
        // The sender is in `self`, so that the channel is open.
        let _ = self.state.subscribe().wait_for(|state| state.reads >= reads).await;
    }

    async fn read(&self) -> State {
        self.wait_for_reads(1).await;
        self.state.borrow().clone()
    }

    fn ensure_task(&self) {
        // The handle is consistent even if a holder panicked.
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            *task = Some(tokio::spawn(run(self.itself.clone())).abort_handle());
        }
    }

    /// A29-37: reads the files. A87-11: a problem leaves the last good content in use.
    async fn refresh(&self) {
        let (files, crypto) = (self.files.clone(), Arc::clone(&self.crypto));
        // A clock that does not work is as bad as one that is off: nothing is valid.
        let now = self.clock.current_time().unwrap_or(UnixTime::since_unix_epoch(Duration::ZERO));
        let before = self.state.borrow().clone();
        let Ok(after) = spawn_blocking(move || before.read(&files, &crypto, now)).await else { return };
        let before = self.state.send_replace(after.clone());
        report(&before.identity, &after.identity);
        report(&before.trust, &after.trust);
    }

    /// A29-34, A65-06: the pause before the next read.
    fn interval(&self) -> Duration {
        let interval = self.files.refresh_interval.max(MIN_INTERVAL);
        // Without any content nothing works, so that the files are looked for more often.
        if self.state.borrow().is_usable() { interval } else { interval.min(MIN_INTERVAL) }
    }
}

impl Drop for FileWatcher {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl fmt::Debug for FileWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileWatcher").field("files", &self.files).finish_non_exhaustive()
    }
}

async fn run(watcher: Weak<FileWatcher>) {
    loop {
        let Some(strong) = watcher.upgrade() else { return };
        strong.refresh().await;
        let interval = strong.interval();
        drop(strong);
        sleep(interval).await;
    }
}

impl State {
    /// Reads all files once. Blocks.
    fn read(mut self, files: &CertificateFiles, crypto: &CryptoProvider, now: UnixTime) -> Self {
        self.reads += 1;
        if let Some(files) = &files.identity {
            self.identity
                .update(read_pair(files), |(chain, key)| Identity::from_pem(files, chain, key, crypto, now));
        }
        match &files.roots {
            None => {}
            Some(RootsFile::CaCertificates(path)) => self.trust.update(file::read(path), |pem| {
                let roots = Roots::from_pem(pem).map_err(|why| FileError::new(path, why))?;
                if !roots.any_valid(now) {
                    return Err(FileError::new(path, "has no certificate that is valid now"));
                }
                Ok(Trust::Roots(roots))
            }),
            Some(RootsFile::SpiffeBundleMap(path)) => self.trust.update(file::read(path), |json| {
                let map = TrustBundleMap::from_json(json).map_err(|why| FileError::new(path, why))?;
                Ok(Trust::Spiffe(map))
            }),
        }
        self
    }

    /// Whether no file is without good content.
    fn is_usable(&self) -> bool {
        !self.identity.is_missing() && !self.trust.is_missing()
    }
}

fn read_pair(files: &IdentityFiles) -> Result<(Vec<u8>, Vec<u8>), FileError> {
    Ok((file::read(&files.certificate_file)?, file::read(&files.private_key_file)?))
}

impl<T> Slot<T> {
    fn outcome(&self) -> Result<Option<Arc<T>>, Arc<FileError>> {
        match (&self.good, &self.problem) {
            (Some(good), _) => Ok(Some(Arc::clone(good))),
            (None, Some(problem)) => Err(Arc::clone(problem)),
            (None, None) => Ok(None),
        }
    }

    fn is_missing(&self) -> bool {
        self.good.is_none() && self.problem.is_some()
    }

    /// Takes what was read, unless it is the good content already.
    fn update<R: Hash>(
        &mut self,
        read: Result<R, FileError>,
        parse: impl FnOnce(&R) -> Result<T, FileError>,
    ) {
        let parsed = read.and_then(|content| {
            let hash = hash(&content);
            match &self.good {
                Some(good) if self.hash == hash => Ok((Arc::clone(good), hash)),
                _ => parse(&content).map(|good| (Arc::new(good), hash)),
            }
        });
        match parsed {
            Ok((good, hash)) => *self = Self { good: Some(good), problem: None, hash },
            Err(problem) => self.problem = Some(Arc::new(problem)),
        }
    }
}

/// Logs a change: a problem once, not at every read.
fn report<T>(before: &Slot<T>, after: &Slot<T>) {
    match &after.problem {
        Some(problem) if after.problem != before.problem => {
            let kept = if after.good.is_some() { "; the previous content stays in use" } else { "" };
            tracing::warn!("certificate file {problem}{kept}");
        }
        None if before.problem.is_some() => tracing::info!("the certificate files are good again"),
        _ => {}
    }
}

fn hash(content: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { good: None, problem: None, hash: 0 }
    }
}

impl<T> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self { good: self.good.clone(), problem: self.problem.clone(), hash: self.hash }
    }
}
