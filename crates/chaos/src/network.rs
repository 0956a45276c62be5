//! A separate network for a run, where the system allows one: the kernel itself then drops packets.
//!
//! Links of this program hold bytes back but acknowledge them; only the kernel can leave them unacknowledged. Backends
//! without a link get separate addresses, which a routing rule turns into black holes. Delay and loss of the whole
//! network come from netem or, where the kernel lacks it, from a token bucket that is too small for the load.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, ExitStatus};

/// The network namespace of this process and its children.
#[derive(Debug)]
pub(crate) struct Network {
    shaper: Shaper,
}

/// The queueing discipline that delays and loses packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shaper {
    Netem,
    TokenBucket,
    Nothing,
}

const NETEM: &[&str] = &["netem", "delay", "3ms", "2ms", "loss", "1%"];
const TOKEN_BUCKET: &[&str] = &["tbf", "rate", "30mbit", "burst", "32k", "latency", "20ms"];

/// Runs this program again with the same arguments in a separate network namespace.
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
    /// Sets up the network namespace of this process.
    pub(crate) fn set_up() -> io::Result<Self> {
        // Packets as large as in real networks; larger ones would not fit into the token bucket.
        run("ip", &["link", "set", "lo", "mtu", "1500", "up"])?;
        // Our rules must precede the one of local addresses.
        run("ip", &["rule", "add", "lookup", "local", "priority", "10"])?;
        run("ip", &["rule", "del", "priority", "0"])?;
        let works = |kind: &[&str]| {
            let works = qdisc("add", kind).is_ok();
            // It does not exist if it was not added.
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

    /// Its capabilities.
    pub(crate) fn describe(&self) -> &'static str {
        match self.shaper {
            Shaper::Netem => "a namespace with black holes and netem",
            Shaper::TokenBucket => {
                "a namespace with black holes and a token bucket (the kernel has no netem)"
            }
            Shaper::Nothing => "a namespace with black holes (the kernel has neither netem nor tbf)",
        }
    }

    /// A unique address for a backend.
    pub(crate) fn address_of_its_own(address: SocketAddr, number: usize) -> SocketAddr {
        // There are ten backends.
        let last = u8::try_from(number + 1).unwrap_or(u8::MAX);
        SocketAddr::from(([127, 0, 1, last], address.port()))
    }

    /// Drops all packets to an address.
    pub(crate) fn block(&self, address: IpAddr) -> io::Result<()> {
        run("ip", &["rule", "add", "to", &address.to_string(), "priority", "1", "blackhole"])
    }

    /// Ends [`Self::block`].
    pub(crate) fn unblock(&self, address: IpAddr) -> io::Result<()> {
        run("ip", &["rule", "del", "to", &address.to_string(), "priority", "1", "blackhole"])
    }

    /// Delays and loses packets of the whole network.
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
