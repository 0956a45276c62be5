//! Worlds with several management servers.

use proxyless_sim::planes::{self, Seen};

#[test]
fn a47_16_20_a71_13_14_outages_of_many_servers_keep_the_laws() {
    let mut seen = Seen::default();
    for seed in 0..60 {
        let Seen { streams, fallbacks } =
            planes::run(seed).unwrap_or_else(|violation| panic!("seed {seed}: {violation:?}"));
        seen = Seen { streams: seen.streams + streams, fallbacks: seen.fallbacks + fallbacks };
    }
    // The worlds are worth something only if much happens in them.
    assert!(seen.streams > 2_000 && seen.fallbacks > 500, "{seen:?}");
}
