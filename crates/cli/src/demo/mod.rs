//! `proxyless demo`: a mesh changes while RPCs run, and RPCs move.

mod certificates;
mod commentary;
mod interactive;
mod load;
mod mesh;
mod reports;
mod scenario;
mod sessions;
mod summary;
#[cfg(test)]
mod testing;
mod timeline;
mod view;

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use proxyless::{Bootstrap, Gates, XdsChannel};

use commentary::Commentary;
use load::Load;
use mesh::Mesh;
use reports::Reports;
use scenario::{Act, Phase, ScenarioName};
use summary::{Played, Summary};
use view::{Frame, View};

use crate::output::print;

/// The maximum time beyond the plan that a phase waits for its expected result.
const PATIENCE: Duration = Duration::from_secs(20);

/// The interval at which the picture is drawn and the end of a phase is checked.
const FRAME: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, Args)]
pub(crate) struct DemoFlags {
    /// The scenario to play
    #[arg(long, value_enum, default_value_t = ScenarioName::Failover)]
    scenario: ScenarioName,
    /// The approximate duration in seconds (a few at least); by default that of the scenario, at most 20
    #[arg(long, value_name = "SECONDS", value_parser = RangedU64ValueParser::<u64>::new().range(1..=3600))]
    duration: Option<u64>,
    /// RPCs per second
    #[arg(long, default_value_t = 200, value_parser = RangedU64ValueParser::<u32>::new().range(1..=10_000))]
    rate: u32,
    /// Print only the summary
    #[arg(long, short)]
    quiet: bool,
    /// Print lines instead of an animated picture, as when the output is not a terminal
    #[arg(long, conflicts_with = "quiet")]
    plain: bool,
    /// Change the mesh yourself, with keys or with buttons on the live page, until you quit
    #[arg(long, conflicts_with_all = ["quiet", "scenario"])]
    interactive: bool,
    /// Loopback port for the live page and `proxyless status`; 0 chooses a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    admin_port: u16,
}

/// Runs the demo. The exit code tells whether all RPCs moved as expected, sessions stayed where possible, and the
/// control plane received all load reports.
pub(crate) async fn run(flags: DemoFlags) -> Result<ExitCode, Box<dyn Error>> {
    if flags.interactive {
        return interactive::run(&flags).await;
    }
    let scenario = flags.scenario.scenario();
    let plan = Duration::from_secs(flags.duration.unwrap_or(scenario.seconds));
    let shares: u32 = scenario.phases.iter().map(|phase| phase.share).sum();
    let mesh = Mesh::start(scenario).await?;
    let mut gates = Gates::default();
    (scenario.gates)(&mut gates);
    // Only channels that are built afterwards are measured.
    proxyless_admin::collect_metrics();
    let channel = XdsChannel::builder(scenario.target)
        .bootstrap(Bootstrap::from_json(&mesh.bootstrap_json())?)
        .gates(gates)
        .build()?;
    let admin = proxyless_admin::serve(flags.admin_port).await?;
    if !flags.quiet {
        let address = admin.address();
        let pages = format!("live page: http://{address}   also: proxyless status --tree {address}\n\n");
        print(&pages)?.or_end()?;
    }
    let load = Load::start(channel.clone(), flags.rate);
    let commentary = Commentary::new(mesh.names());
    let mut stage = Stage { mesh, channel, load, view: View::new(&flags), commentary, plan };

    let mut played = Vec::new();
    for phase in scenario.phases {
        let ending = stage.play(phase, plan * phase.share / shares).await?;
        let (Ending::Settled(times) | Ending::TimedOut(times)) = ending;
        played.push(times);
        if matches!(ending, Ending::TimedOut(_)) {
            break;
        }
    }
    stage.view.end()?;

    let Stage { mesh, load, channel, .. } = stage;
    let samples = load.stop().await;
    let reports = Reports::collect(scenario.reported, &mesh, &channel, &samples).await;
    let last = played.len().checked_sub(1).and_then(|at| scenario.phases.get(at));
    let handshakes = mesh.handshakes(last.map_or(&[], |phase| phase.expect));
    let summary = Summary::new(scenario.phases, &played, mesh.members(), &samples)
        .with_reports(reports)
        .with_handshakes(handshakes);
    print(&format!("{summary}\n"))?;
    Ok(if summary.problems().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The environment in which the phases are played.
struct Stage {
    mesh: Mesh,
    channel: XdsChannel,
    load: Load,
    view: View,
    commentary: Commentary,
    plan: Duration,
}

enum Ending {
    /// RPCs went where expected.
    Settled(Played),
    /// They did not, so the demo ends.
    TimedOut(Played),
}

impl Stage {
    /// Plays a phase: applies its changes, shows the result for this long, and then continues until RPCs have settled
    /// where expected, or patience runs out.
    async fn play(&mut self, phase: &Phase, length: Duration) -> Result<Ending, Box<dyn Error>> {
        let begin = self.load.now();
        self.view.begin(begin, phase.title)?;
        for act in phase.acts {
            match act {
                Act::Mesh(change) => self.mesh.change(change).await?,
                Act::LogIn(count) => self.load.log_in(*count),
            }
        }
        let mut frames = tokio::time::interval(FRAME);
        loop {
            frames.tick().await;
            if self.view.is_shown() {
                for sentence in self.commentary.listen(&self.channel).await {
                    self.view.say(self.load.now(), &sentence)?;
                }
            }
            let (members, view) = (self.mesh.members(), &mut self.view);
            let (state, plan) = (self.channel.state(), self.plan);
            let (end, drawn, settled) = self.load.read(|samples, now| {
                let drawn = view.draw(&Frame { title: phase.title, state, members, samples, now, plan });
                (now, drawn, load::settled_in(phase.expect, members, samples, begin, now))
            });
            drawn?;
            let settled = self.mesh.renew_connections(phase.expect) && settled;
            if settled && end >= begin + length {
                return Ok(Ending::Settled(Played { begin, end }));
            }
            if end >= begin + length + PATIENCE {
                return Ok(Ending::TimedOut(Played { begin, end }));
            }
        }
    }
}
