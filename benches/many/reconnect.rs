//! All autoscalers connect again at once, as when a replica was killed.

use std::{collections::BTreeMap, time::Duration};

use crate::{Args, program::Program, turns::Turns, world::World};

/// The longest time until all have a Refresh again: that after a replica was killed.
const AGAIN: Duration = Duration::from_secs(12);
/// The documented time in which one known address may have another handshake, and the number it may have at once.
const ANOTHER: Duration = Duration::from_millis(8);
const AT_ONCE: u32 = 1_024;

/// The figures of one such time.
pub(crate) struct Again {
    have_addresses: bool,
    after: Duration,
    /// The number of connections that were refused in their handshake, by reason.
    refused: BTreeMap<String, u64>,
    unready: (usize, usize),
    peak: u64,
    limit: Duration,
}

/// Lets the autoscalers connect again, from an address each or all from the same one.
pub(crate) fn measure(world: &World<'_>, program: &Program, args: &Args, have_addresses: bool) -> Again {
    let mut turns = Turns::start_at(world, program, args, have_addresses);
    turns.until_served();
    let count = args.clusters as u32;
    // The handshakes of the start were taken from the same rate.
    std::thread::sleep(ANOTHER * count.min(AT_ONCE));
    let before = world.block_on(program.refused());
    program.forget_peak();
    let readiness = program.readiness(world);
    let after = turns.reconnect();
    let (unready, peak) = (readiness.missed(), program.memory("VmHWM"));
    let mut refused = world.block_on(program.refused());
    for (reason, count) in &mut refused {
        *count -= before.get(reason).copied().unwrap_or_default();
    }
    refused.retain(|_, count| *count > 0);
    // One address has as many at once as the target is about, and each that has failed once more has its time.
    let limit = if have_addresses { AGAIN } else { AGAIN + ANOTHER * count };
    Again { have_addresses, after, refused, unready, peak, limit }
}

impl Again {
    pub(crate) fn print(&self) {
        let name = if self.have_addresses { "of an address each" } else { "of one address" };
        println!(
            "{:<44} {:>14.1} s {:>16}  {:.1} s; refused on the way: {:?}; not ready {} of {} times",
            format!("all connect again at once, {name}"),
            self.after.as_secs_f64(),
            format!("peak {} MiB", self.peak / 1024),
            self.limit.as_secs_f64(),
            self.refused,
            self.unready.0,
            self.unready.1,
        );
    }

    /// Returns the violated limits: readiness at any size, the time at full size only.
    pub(crate) fn missed(&self, is_full: bool) -> Vec<String> {
        let mut missed = Vec::new();
        if self.unready.0 > 0 {
            missed.push("missed: readiness while all connect again".to_owned());
        }
        if is_full && self.after > self.limit {
            missed.push("missed: the time until all are served again".to_owned());
        }
        missed
    }
}
