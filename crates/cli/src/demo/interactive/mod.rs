//! `proxyless demo --interactive`: keys in the terminal and buttons on the live page change the mesh while RPCs run.

mod command;
mod keys;
mod world;

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proxyless::{Bootstrap, XdsChannel};
use proxyless_admin::{Admin, ControlRow, Controls};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::command::Command;
use self::keys::Keys;
use self::world::World;
use super::commentary::Commentary;
use super::load::Load;
use super::view::{Frame, View};
use super::{DemoFlags, FRAME};
use crate::output::print;

/// The span of the timeline, unless --duration sets another; the demo ends when the user ends it.
const SPAN: Duration = Duration::from_secs(60);

/// Runs until the user ends it: `q`, the end of the input, or an interrupt.
pub(super) async fn run(flags: &DemoFlags) -> Result<ExitCode, Box<dyn Error>> {
    let mut world = World::start().await?;
    // Only channels that are built afterwards are measured.
    proxyless_admin::collect_metrics();
    let channel = XdsChannel::builder("xds:///shop")
        .bootstrap(Bootstrap::from_json(&world.bootstrap_json())?)
        .build()?;
    let (commands, mut inbox) = unbounded_channel();
    let buttons = Arc::new(Buttons { rows: Mutex::new(world.rows()), commands });
    let admin =
        Admin::default().controls(Arc::clone(&buttons) as Arc<dyn Controls>).serve(flags.admin_port).await?;
    let help = format!("live page with buttons: http://{}\n\n{}\n\n", admin.address(), keys::HELP);
    print(&help)?.or_end()?;
    let load = Load::start(channel.clone(), flags.rate);
    let mut view = View::new(flags);
    let mut commentary = Commentary::new(world.names());
    let (mut keys, mut inputs) = Keys::start(world.members().len());
    let plan = flags.duration.map_or(SPAN, Duration::from_secs);
    let mut frames = tokio::time::interval(FRAME);
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let command = tokio::select! {
            _ = frames.tick() => None,
            _ = &mut interrupted => break,
            Some(command) = inbox.recv() => Some(Ok(command)),
            input = inputs.recv() => match input.map(|input| keys.read(input, &world)) {
                None | Some(keys::Meaning::Quit) => break,
                Some(keys::Meaning::Command(command)) => Some(command),
                Some(keys::Meaning::Nothing) => None,
            },
        };
        match command {
            Some(Ok(command)) => {
                view.say(load.now(), &format!("you: {command}"))?;
                world.apply(&command).await?;
                buttons.show(world.rows());
            }
            Some(Err(why)) => view.say(load.now(), &why)?,
            None => {}
        }
        for sentence in commentary.listen(&channel).await {
            view.say(load.now(), &sentence)?;
        }
        let (title, members, state) = (keys.prompt(world.members()), world.members(), channel.state());
        load.read(|samples, now| view.draw(&Frame { title: &title, state, members, samples, now, plan }))?;
    }
    view.end()?;
    drop(keys);
    let samples = load.stop().await;
    let failed = samples.iter().filter(|sample| sample.is_failure()).count();
    print(&format!("{} RPCs, {failed} failed\n", samples.len()))?;
    Ok(ExitCode::SUCCESS)
}

/// The buttons on the live page.
struct Buttons {
    rows: Mutex<Vec<ControlRow>>,
    commands: UnboundedSender<Command>,
}

impl Buttons {
    fn show(&self, rows: Vec<ControlRow>) {
        *self.rows.lock().unwrap_or_else(PoisonError::into_inner) = rows;
    }
}

impl Controls for Buttons {
    fn rows(&self) -> Vec<ControlRow> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn act(&self, command: &str) -> Result<(), String> {
        let known = self.rows().iter().any(|row| row.buttons.iter().any(|(_, known)| known == command));
        if !known {
            return Err(format!("there is no button for {command:?} now"));
        }
        let command = Command::parse(command)?;
        self.commands.send(command).map_err(|_| "the demo has ended".to_owned())
    }
}
