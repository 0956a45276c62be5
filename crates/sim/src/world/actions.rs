//! Executes the steps of a script.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use proxyless_mesh::channel_core::ChannelInput;

use super::{Cookie, Request, World};
use crate::clients::calls::End;
use crate::clients::endpoints::{Behaviour, Connection, Happening, Phase};
use crate::laws::invariants::Violation;
use crate::laws::outliers;
use crate::script::{Action, CallSpec, Change, CutTime, Mood};
use crate::servers::control_plane::Welcome;
use crate::servers::load_server::LoadReportRequest;
use crate::world::queue::{Event, Lane};

impl World {
    /// Executes an action.
    ///
    /// # Errors
    /// If an invariant breaks.
    pub fn act(&mut self, action: Action) -> Result<(), Violation> {
        self.log.line(self.now, format_args!("script: {action:?}"));
        match action {
            Action::Start(index) => self.start_channel(index),
            Action::Stop(index) => return self.stop_channel(index),
            Action::Set(change) => {
                let due = self.control_plane.set(change);
                self.prepare(due);
            }
            Action::Remove(key) => {
                let due = self.control_plane.remove(key);
                self.prepare(due);
            }
            Action::Fault(key, fault) => {
                let due = self.control_plane.break_resource(key, fault);
                self.prepare(due);
            }
            Action::Heal(key) => {
                let due = self.control_plane.heal(key);
                self.prepare(due);
            }
            Action::CutStream(loss) => self.cut_stream(loss),
            Action::RefuseStreams => self.control_plane.welcome = Welcome::Refused,
            Action::NoAdsService => self.control_plane.welcome = Welcome::NoService,
            Action::AcceptStreams => self.control_plane.welcome = Welcome::Accepted,
            Action::ServerDelay(delay) => self.control_plane.delay = delay,
            Action::OpenDelay(delay) => self.control_plane.open_delay = delay,
            Action::SendAgain(resource_type) => {
                let due = self.control_plane.send_again(resource_type);
                self.prepare(due);
            }
            Action::Flood(resource_type, count) => {
                let stream = self.control_plane.stream();
                for pushed in self.control_plane.flood(resource_type, count) {
                    self.log.line(self.now, format_args!("server: {:?}", pushed.response));
                    self.link.responses.insert(pushed.response.nonce.clone(), pushed.response);
                    stream.into_iter().for_each(|stream| self.transmit(stream, pushed.bytes.clone()));
                }
            }
            Action::WriteDelay(delay) => self.control_plane.write_delay = delay,
            Action::Stall(index, span) => self.stall(index, span),
            Action::Suspend(span) => {
                self.now = self.now + span;
                let now = self.now;
                self.channels.iter_mut().flatten().for_each(|channel| channel.resumed = now);
            }
            Action::SendGarbage => {
                if let Some(stream) = self.control_plane.stream() {
                    self.transmit(stream, Bytes::from_static(b"\xff\xff\xff"));
                }
            }
            Action::Backend(address, behaviour) => self.set_backend(address, behaviour),
            Action::SilenceHosts(channel, session) => {
                for host in self.sessions.hosts(channel, session) {
                    self.set_backend(host, Behaviour::Silent);
                }
            }
            Action::GoAway(address) => self.happens_to(address, Happening::GoAway),
            Action::Reset(address) => self.happens_to(address, Happening::Broken),
            Action::BreakDns(host) => drop(self.broken_hosts.insert(host)),
            Action::HealDns(host) => drop(self.broken_hosts.remove(&host)),
            Action::Failing(address, percent) => self.backends.set_failing(address, percent),
            Action::Call(spec) => return self.begin_call(spec),
            Action::Burst(spec, count) => return self.burst(&spec, count),
            Action::RequestLoad(request) => self.set_load_request(request),
            Action::LoadGarbage => self.transmit_to_loads(Bytes::from_static(b"\xff\xff\xff")),
            Action::CutLoadStream(CutTime::Now) => self.cut_load_stream(),
            Action::CutLoadStream(CutTime::NextReport) => self.loads.cut_next_report(),
            Action::ToggleSessions(index) => {
                let name = format!("l{index}");
                if let Some(listener) = self.control_plane.mesh.listeners.get(&name).cloned() {
                    let due = self.control_plane.set(Change::Listener(name, listener.toggled()));
                    self.prepare(due);
                }
            }
            Action::ToggleLoad(name) => {
                if let Some(mut cluster) = self.control_plane.mesh.clusters.get(&name).cloned() {
                    cluster.reports_load = !cluster.reports_load;
                    let due = self.control_plane.set(Change::Cluster(name, cluster));
                    self.prepare(due);
                }
            }
            Action::RefuseLoadStreams => self.loads.server.refuses = true,
            Action::AcceptLoadStreams => self.loads.server.refuses = false,
            Action::StreamLimit(address, limit) => self.limit_streams(address, limit),
            Action::ExitIdle(index) => self.user_input(index, ChannelInput::ExitIdle),
            Action::ResetBackoff(index) => self.user_input(index, ChannelInput::ResetBackoff),
        }
        Ok(())
    }

    /// Ends every fault, except that backends keep their behaviour.
    pub(crate) fn calm_down(&mut self) {
        self.control_plane.welcome = Welcome::Accepted;
        self.control_plane.delay = Duration::ZERO;
        self.control_plane.write_delay = Duration::ZERO;
        self.resume_all();
        self.control_plane.open_delay = Duration::ZERO;
        self.broken_hosts.clear();
        self.backends.stop_failing();
        self.lift_stream_limits();
        self.loads.server.refuses = false;
        self.set_load_request(LoadReportRequest::default());
        for due in self.control_plane.heal_all() {
            self.prepare(Some(due));
        }
    }

    /// Ends all calls and closes all channels; nothing may be left of them.
    ///
    /// # Errors
    /// If something is left.
    pub fn shut_down(&mut self) -> Result<(), Violation> {
        for index in 0..self.channels.len() {
            self.stop_channel(index)?;
        }
        self.calls.end_all();
        self.run_for(Duration::from_secs(1))?;
        let (deadline, watched) = (self.xds.next_deadline(), self.xds.dump());
        Violation::unless(deadline.is_none(), "a client without watches has no timer", || {
            format!("{deadline:?}")
        })?;
        Violation::unless(watched.is_empty(), "a client without watches has no resources", || {
            format!("{watched:?}")
        })?;
        let stream = self.control_plane.stream();
        Violation::unless(stream.is_none(), "a client without watches has no stream", || {
            format!("{stream:?}")
        })?;
        let circuits = self.circuits.len();
        Violation::unless(circuits == 0, "circuit breakers are dropped with their last user", || {
            format!("{circuits} are left")
        })?;
        self.last_reports()
    }

    /// A burst of RPCs; ejections are checked afterwards.
    fn burst(&mut self, spec: &CallSpec, count: u32) -> Result<(), Violation> {
        for _ in 0..count {
            let cookie = spec.session.map(Cookie::Session);
            self.probe_with(spec.channel, Request { path: &spec.path, cookie, ..Request::default() })?;
        }
        if self.settings.outliers { outliers::check_limits(self) } else { Ok(()) }
    }

    fn set_backend(&mut self, address: SocketAddr, behaviour: Behaviour) {
        self.backends.set(address, behaviour);
        if !self.backends.accepts(address) {
            self.happens_to(address, Happening::Broken);
        }
    }

    /// An event of all connections to a backend.
    fn happens_to(&mut self, address: SocketAddr, happening: Happening) {
        // A backend that ends its connections twice within a second makes calls fail, which must not happen in a gentle
        // world.
        let gentle = self.settings.mood == Mood::Gentle;
        let hits = |c: &Connection| {
            c.address == address && c.phase == Phase::Ready && (!gentle || c.is_settled(self.now))
        };
        let mut hit = Vec::new();
        for channel in self.channels() {
            let ready = channel.connections.iter().filter(|(_, c)| hits(c));
            hit.extend(ready.map(|(attempt, _)| (channel.epoch, attempt)));
        }
        for (epoch, attempt) in hit {
            if happening == Happening::Broken {
                for id in self.calls.on_connection(epoch, attempt) {
                    self.calls.end(id, End::Badly("connection reset".into()));
                }
                self.breaks(epoch, attempt);
            }
            let at = self.now + self.network_delay();
            let event = Event::Connection { epoch, attempt, happening };
            self.queue.push_in(Lane::Connection(epoch, attempt), at, event);
        }
    }

    fn breaks(&mut self, epoch: u64, attempt: u64) {
        let Some(channel) = self.by_epoch(epoch) else { return };
        channel.connections.breaks(attempt);
        if let Some(subchannel) = channel.connections.get(attempt).map(|found| found.id) {
            self.dissolve_line(epoch, subchannel);
        }
    }

    fn user_input(&mut self, index: usize, input: ChannelInput) {
        if let Some(epoch) = self.channel(index).map(|channel| channel.epoch) {
            self.queue.push(self.now, Event::Channel { epoch, input, token: None });
        }
    }
}
