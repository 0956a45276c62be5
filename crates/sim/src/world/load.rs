//! The driver of load reports, and the network between it and the load reporting server.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::service::load_stats::v3::LoadStatsRequest;
use prost::Message as _;
use proxyless_sans_io::Time;
use proxyless_xds::StreamId;
use proxyless_xds::lrs::{Effect, Input, LrsCore, LrsCoreConfig};

use super::World;
use crate::laws::invariants::Violation;
use crate::servers::encode;
use crate::servers::load_server::{self, LoadReportRequest, LoadServer};
use crate::world::queue::{Event, Lane};

/// Longer than the backoff and the longest interval: all remaining load is reported within this time.
const LAST_REPORTS: Duration = Duration::from_secs(200);

/// The time for which load is kept for a server that does not ask for reports, since the last store has gone or the last
/// report was sent.
const GIVEN_UP: Duration = Duration::from_secs(300);

/// The LRS core, its stream and the server.
pub(crate) struct LoadReports {
    pub(super) core: LrsCore,
    pub(crate) server: LoadServer,
    stream: StreamId,
    phase: Phase,
    /// The request that HTTP/2 has not sent yet, and the time at which it was written.
    sending: Option<(Time, LoadStatsRequest)>,
    requests: u32,
    /// Whether the stream breaks with the next report.
    cut_next: bool,
    reading: bool,
    inbox: VecDeque<Bytes>,
    /// The time without a request for reports since the last report was sent, up to `silent_since`.
    silent: Duration,
    /// The end of the last stream on which the server requested reports.
    silent_since: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Closed,
    Open,
    /// It broke, and the client has not noticed yet.
    Broken,
}

impl LoadReports {
    pub(super) fn new(seed: u64) -> Self {
        let config = LrsCoreConfig {
            server_uri: "sim:///load".into(),
            first_request: encode::load_node(),
            seed: seed ^ 0x10ad,
        };
        Self {
            core: LrsCore::new(config),
            server: LoadServer::default(),
            stream: StreamId::default(),
            phase: Phase::Closed,
            sending: None,
            requests: 0,
            cut_next: false,
            reading: false,
            inbox: VecDeque::new(),
            silent: Duration::ZERO,
            silent_since: Time::ZERO,
        }
    }

    /// The stream breaks with the next report.
    pub(super) fn cut_next_report(&mut self) {
        self.cut_next = true;
    }
}

impl World {
    /// Registers or unregisters a channel's store.
    pub(super) fn load_changes(&mut self, epoch: u64, input: Input) {
        let at = self.now + self.local_delay();
        self.queue.push_in(Lane::ToLoads(epoch), at, Event::Load(input));
    }

    /// Hands the core an input, and executes its effects.
    pub(super) fn tell_loads(&mut self, input: Input) -> Result<(), Violation> {
        let broken = self.loads.phase == Phase::Broken;
        match &input {
            // Nothing is delivered on a broken stream until the client notices.
            Input::StreamUp { .. } | Input::SendDone { .. } | Input::Message { .. } if broken => {
                return Ok(());
            }
            Input::SendDone { stream } if *stream == self.loads.stream => self.pulled()?,
            Input::Message { stream, bytes } if *stream == self.loads.stream => {
                if !self.loads.server.has_told() {
                    self.loads.silent += self.now.since(self.loads.silent_since);
                }
                self.loads.server.told(self.now, bytes.clone());
            }
            Input::StreamDown { stream, .. } if *stream == self.loads.stream => {
                self.load_stream_ends();
                self.loads.phase = Phase::Closed;
                self.loads.sending = None;
            }
            _ => {}
        }
        self.loads.core.handle(self.now, input);
        while let Some(effect) = self.loads.core.poll_effect() {
            self.do_for_loads(effect)?;
        }
        Ok(())
    }

    fn do_for_loads(&mut self, effect: Effect) -> Result<(), Violation> {
        match effect {
            Effect::OpenStream { stream } => {
                self.log.line(self.now, format_args!("load: open stream {stream}"));
                let new = stream > self.loads.stream && self.loads.phase == Phase::Closed;
                Violation::unless(new, "there is one load stream at a time", || format!("stream {stream}"))?;
                self.open_load_stream(stream);
            }
            Effect::CloseStream { stream } => {
                self.log.line(self.now, format_args!("load: close stream {stream}"));
                let report = self.loads.sending.as_ref().is_some_and(|(_, request)| request.node.is_none());
                let fine = stream == self.loads.stream && self.loads.phase != Phase::Closed && !report;
                Violation::unless(fine, "a load stream ends after its last report", || {
                    format!("stream {stream}, {:?}, report in transit: {report}", self.loads.phase)
                })?;
                self.load_stream_ends();
                self.loads.phase = Phase::Closed;
                self.loads.sending = None;
            }
            Effect::Disconnect => {
                let closed = self.loads.phase == Phase::Closed;
                Violation::unless(closed, "a connection is closed after its load stream", || {
                    format!("{:?}", self.loads.phase)
                })?;
                self.load_may_be_given_up();
            }
            Effect::Send { stream, bytes } => self.send_load(stream, bytes)?,
            Effect::ReadNext { stream } => {
                let fine = stream == self.loads.stream && !std::mem::replace(&mut self.loads.reading, true);
                Violation::unless(fine, "one load message is read at a time", || format!("stream {stream}"))?;
                self.deliver_load_request();
            }
        }
        Ok(())
    }

    fn load_stream_ends(&mut self) {
        if self.loads.server.has_told() {
            self.loads.silent_since = self.now;
        }
    }

    /// Without stores, load that could not be reported for long is dropped.
    fn load_may_be_given_up(&mut self) {
        let is_long = self.loads.silent + self.now.since(self.loads.silent_since) >= GIVEN_UP;
        let server = &self.loads.server;
        if is_long && self.calls.ledger.balance(|cluster| server.always_wanted(cluster)).is_err() {
            self.log.line(self.now, format_args!("load: unreported load is dropped"));
            self.loads.server.given_up();
        }
    }

    fn open_load_stream(&mut self, stream: StreamId) {
        let refuses = self.loads.server.refuses;
        self.loads.server.opened();
        self.loads.stream = stream;
        self.loads.phase = Phase::Open;
        (self.loads.requests, self.loads.reading) = (0, false);
        self.loads.sending = None;
        self.loads.inbox.clear();
        let at = self.now + self.network_delay();
        let input = match refuses {
            true => Input::StreamDown { stream, reason: "UNAVAILABLE: connection refused".into() },
            false => Input::StreamUp { stream },
        };
        self.queue.push_in(Lane::LoadStream(stream.0), at, Event::Load(input));
    }

    fn send_load(&mut self, stream: StreamId, bytes: Bytes) -> Result<(), Violation> {
        let request = LoadStatsRequest::decode(bytes)
            .map_err(|error| Violation::new("reports are LoadStatsRequests", error.to_string()))?;
        self.log.line(self.now, format_args!("load: send {}", load_server::describe(&request)));
        let alone = self.loads.stream == stream && self.loads.sending.is_none();
        Violation::unless(alone, "reports are sent one at a time", || format!("stream {stream}"))?;
        self.loads.requests += 1;
        let first = self.loads.requests == 1;
        // A27-61: the node is sent first, alone and once.
        let fine = request.node.is_some() == first && (!first || request.cluster_stats.is_empty());
        Violation::unless(fine, "the node is in the first request only", || format!("{request:?}"))?;
        if !first {
            let registers = |event: &Event| matches!(event, Event::Load(Input::Register { .. }));
            let settled = !self.queue.iter().any(registers);
            self.loads.server.written(self.now, &request, &self.calls.ledger, settled)?;
            self.calls.ledger.reports += 1;
        }
        self.loads.sending = Some((self.now, request));
        // Sometimes the server is slow to read it.
        let slow = if self.rng.below(8) == 0 { self.rng.below(3_000) } else { 0 };
        let at = self.now + Duration::from_millis(slow) + self.local_delay();
        self.queue.push_in(Lane::LoadStream(stream.0), at, Event::Load(Input::SendDone { stream }));
        if !first && std::mem::take(&mut self.loads.cut_next) {
            self.cut_load_stream();
        }
        Ok(())
    }

    /// HTTP/2 sent the request.
    fn pulled(&mut self) -> Result<(), Violation> {
        let Some((written, request)) = self.loads.sending.take() else { return Ok(()) };
        if request.node.is_some() {
            self.send_load_request();
            return Ok(());
        }
        self.loads.silent = Duration::ZERO;
        self.loads.server.pulled(written, request, &mut self.calls.ledger)
    }

    /// The server changes its request.
    pub(super) fn set_load_request(&mut self, request: LoadReportRequest) {
        self.loads.server.request = request;
        if self.loads.requests > 0 {
            self.send_load_request();
        }
    }

    fn send_load_request(&mut self) {
        let bytes = self.loads.server.request.encode();
        self.transmit_to_loads(bytes);
    }

    pub(super) fn transmit_to_loads(&mut self, bytes: Bytes) {
        if self.loads.phase == Phase::Open {
            let stream = self.loads.stream;
            let at = self.now + self.network_delay();
            self.queue.push_in(Lane::LoadsToClient(stream.0), at, Event::LoadRequest { stream, bytes });
        }
    }

    pub(super) fn load_request_arrives(&mut self, stream: StreamId, bytes: Bytes) {
        if self.loads.stream == stream && self.loads.phase == Phase::Open {
            self.loads.inbox.push_back(bytes);
            self.deliver_load_request();
        }
    }

    fn deliver_load_request(&mut self) {
        if !self.loads.reading {
            return;
        }
        let Some(bytes) = self.loads.inbox.pop_front() else { return };
        self.loads.reading = false;
        let stream = self.loads.stream;
        let at = self.now + self.local_delay();
        self.queue.push_in(Lane::LoadStream(stream.0), at, Event::Load(Input::Message { stream, bytes }));
    }

    /// The stream breaks, if there is one.
    pub(super) fn cut_load_stream(&mut self) {
        if self.loads.phase != Phase::Open {
            return;
        }
        self.loads.phase = Phase::Broken;
        let stream = self.loads.stream;
        let at = self.now + self.network_delay();
        let reason = "UNAVAILABLE: connection reset".into();
        self.queue.push_in(Lane::LoadStream(stream.0), at, Event::Load(Input::StreamDown { stream, reason }));
    }

    /// After all channels are closed, everything is reported and no stream is left.
    pub(super) fn last_reports(&mut self) -> Result<(), Violation> {
        self.run_for(LAST_REPORTS)?;
        let (deadline, phase) = (self.loads.core.next_deadline(), self.loads.phase);
        Violation::unless(
            deadline.is_none() && phase == Phase::Closed,
            "there is no load stream without stores",
            || format!("{phase:?}, next deadline {deadline:?}"),
        )?;
        let server = &self.loads.server;
        self.calls.ledger.balance(|cluster| server.always_wanted(cluster))
    }
}
