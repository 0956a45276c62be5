//! A network of its own for a run, where the system allows one: the kernel itself then drops packets.
//!
//! Links of this program hold bytes back, but acknowledge them; only the kernel can leave them unacknowledged. Backends that
//! have no link get addresses of their own, which a rule of routing turns into black holes. Delay and loss of the whole
//! network come from netem, or, where the kernel lacks it, from a token bucket that is too small for the load.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, ExitStatus};

/// A network namespace that this process is in, alone with its children.
#[derive(Debug)]
pub(crate) struct Network {
    shaper: Shaper,
}

/// What delays and loses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shaper {
    Netem,
    TokenBucket,
    Nothing,
}

const NETEM: &[&str] = &["netem", "delay", "3ms", "2ms", "loss", "1%"];
const TOKEN_BUCKET: &[&str] = &["tbf", "rate", "30mbit", "burst", "32k", "latency", "20ms"];

/// Runs this program again, with the same arguments, in a network of its own.
pub(crate) fn run_inside() -> io::Result<ExitStatus> {
    Command::new("unshare")
        .args(["--map-root-user", "--net", "--"])
        .arg(std::env::current_exe()?)
        .arg("--parent")
        .arg(std::process::id().to_string())
        .args(std::env::args_os().skip(1))
        .status()
}

impl Network {
    /// Sets the network up that this process is in.
    pub(crate) fn set_up() -> io::Result<Self> {
        // Packets of the size that real networks have; larger ones would not fit into the token bucket.
        run("ip", &["link", "set", "lo", "mtu", "1500", "up"])?;
        // Rules of our own must come before that of local addresses.
        run("ip", &["rule", "add", "lookup", "local", "priority", "10"])?;
        run("ip", &["rule", "del", "priority", "0"])?;
        let works = |kind: &[&str]| {
            let works = qdisc("add", kind).is_ok();
            // It is not there if it was not added.
            let _ = qdisc("del", &[]);
            works
        };
        let shaper = match () {
            () if works(NETEM) => Shaper::Netem,
            () if works(TOKEN_BUCKET) => Shaper::TokenBucket,
            () => Shaper::Nothing,
        };
        Ok(Self { shaper })
    }

    /// What it can do.
    pub(crate) fn describe(&self) -> &'static str {
        match self.shaper {
            Shaper::Netem => "a namespace with black holes and netem",
            Shaper::TokenBucket => {
                "a namespace with black holes and a token bucket (the kernel has no netem)"
            }
            Shaper::Nothing => "a namespace with black holes (the kernel has neither netem nor tbf)",
        }
    }

    /// An address like this one that is no other backend's.
    pub(crate) fn address_of_its_own(address: SocketAddr, number: usize) -> SocketAddr {
        // There are ten.
        let last = u8::try_from(number + 1).unwrap_or(u8::MAX);
        SocketAddr::from(([127, 0, 1, last], address.port()))
    }

    /// Drops everything that is sent to an address.
    pub(crate) fn block(&self, address: IpAddr) -> io::Result<()> {
        run("ip", &["rule", "add", "to", &address.to_string(), "priority", "1", "blackhole"])
    }

    /// Ends [`Self::block`].
    pub(crate) fn unblock(&self, address: IpAddr) -> io::Result<()> {
        run("ip", &["rule", "del", "to", &address.to_string(), "priority", "1", "blackhole"])
    }

    /// Delays and loses packets of all.
    pub(crate) fn squeeze(&self) -> io::Result<()> {
        match self.shaper {
            Shaper::Netem => qdisc("add", NETEM),
            Shaper::TokenBucket => qdisc("add", TOKEN_BUCKET),
            Shaper::Nothing => Ok(()),
        }
    }

    /// Ends [`Self::squeeze`].
    pub(crate) fn relax(&self) -> io::Result<()> {
        if self.shaper == Shaper::Nothing { Ok(()) } else { qdisc("del", &[]) }
    }
}

fn qdisc(verb: &str, kind: &[&str]) -> io::Result<()> {
    run("tc", &[&["qdisc", verb, "dev", "lo", "root"], kind].concat())
}

fn run(program: &str, arguments: &[&str]) -> io::Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program} {}: {}", arguments.join(" "), said.trim())))
}
