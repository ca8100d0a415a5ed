//! The figures of a fleet, and their targets.

use std::time::Duration;

use crate::{
    Args, events,
    parts::Part,
    turns::{Calls, Compared},
    world::Watches,
};

/// The highest ratio of an event's cost to that with one Cluster.
const EVENT: f64 = 1.2;
/// The chart's memory limit in KiB, whatever some Clusters do.
const MOST_MEMORY: u64 = 256 << 10;

/// The measurements of one fleet; memory is in KiB.
pub(crate) struct Figures {
    pub(crate) ready: Duration,
    pub(crate) nodes: Duration,
    pub(crate) served: Duration,
    pub(crate) resident: u64,
    pub(crate) peak: u64,
    pub(crate) watches: Watches,
    pub(crate) plain: Calls,
}

/// The targets of a size.
struct Targets {
    resident: u64,
    p99: u32,
    ready: Duration,
    nodes: Duration,
    /// The least number of calls that a thread answers in a second, if clients call without end.
    of_a_thread: Option<f64>,
}

/// Returns the targets, which are those of two sizes.
fn targets(args: &Args) -> Option<Targets> {
    let seconds = Duration::from_secs;
    match (args.clusters, args.machines) {
        (1_000, 6) => {
            let (ready, nodes) = (seconds(3), seconds(15));
            Some(Targets { resident: 180 << 10, p99: 2_000, ready, nodes, of_a_thread: None })
        }
        (100, 1_000) => {
            let (ready, nodes) = (seconds(11), seconds(20));
            Some(Targets { resident: 170 << 10, p99: 5_000, ready, nodes, of_a_thread: Some(25_000.0) })
        }
        _ => None,
    }
}

/// Prints the figures of one Cluster and of all, with the processor times of an event.
pub(crate) fn print(args: &Args, [one, all]: [&Figures; 2], costs: [Duration; 2]) {
    let targets = targets(args);
    let target = |text: &dyn Fn(&Targets) -> String| targets.as_ref().map(text).unwrap_or_default();
    let row = |name: &str, one: String, all: String, target: String| {
        println!("{name:<44} {one:>16} {all:>16}  {target}");
    };
    let (machines, clusters) = (args.machines, args.clusters);
    println!("Clusters of {machines} Machines each");
    row("", "1 Cluster".to_owned(), format!("{clusters} Clusters"), "target".to_owned());
    let mib = |kib: u64| format!("{} MiB", kib / 1024);
    row("resident, all connected", mib(one.resident), mib(all.resident), target(&|it| mib(it.resident)));
    row("peak", mib(one.peak), mib(all.peak), String::new());
    let watches = |watches: &Watches| format!("{} + {}", watches.management, watches.workload);
    row("watches: management + each workload", watches(&one.watches), watches(&all.watches), "the same".to_owned());
    let seconds = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    row("ready", seconds(one.ready), seconds(all.ready), target(&|it| seconds(it.ready)));
    row("all Nodes in sync", seconds(one.nodes), seconds(all.nodes), target(&|it| seconds(it.nodes)));
    row("all autoscalers served", seconds(one.served), seconds(all.served), String::new());
    let rate = |calls: &Calls| format!("{:.0}/s", calls.per_second);
    row("calls", rate(&one.plain), rate(&all.plain), String::new());
    let micros = |micros: u32| format!("{micros} µs");
    row("median", micros(one.plain.median), micros(all.plain.median), String::new());
    row("p99", micros(one.plain.p99), micros(all.plain.p99), target(&|it| micros(it.p99)));
    let ratio = format!("{:.2} of {EVENT}", events::ratio(costs));
    let [of_one, of_all] = costs.map(|time| format!("{:.1} µs", time.as_secs_f64() * 1e6));
    row("processor time of an event", of_one, of_all, ratio);
}

/// Prints the heading of the rows of attacks and ailments.
pub(crate) fn print_heading() {
    let [without, with, ratio, peak, unready] = ["without", "with", "ratio", "peak", "not ready"];
    println!("\n{:<24} {without:>10} {with:>10} {ratio:>12} {peak:>8} {unready:>10}", "others' p99");
}

/// Prints the row of an attack or ailment.
pub(crate) fn print_turns(part: Part, compared: &Compared) {
    let Compared { without, under, attack, met, unready, peak, .. } = compared;
    let count = match part {
        Part::EndlessClient => format!("{attack:.0} calls/s"),
        Part::EndlessClients => {
            let of_thread = of_a_thread(compared);
            format!("{attack:.0} calls/s; with others' {of_thread:.0}/s of the thread")
        }
        Part::Annotations => format!("{met} changes"),
        _ => format!("{met} requests met it"),
    };
    println!(
        "{:<24} {:>7} µs {:>7} µs {:>12} {:>4} MiB {:>10}  {count}",
        part.cause(),
        without.p99,
        under.p99,
        format!("{:.2} of {}", compared.ratio(), part.limit()),
        peak / 1024,
        format!("{} of {}", unready.0, unready.1),
    );
}

/// Returns the calls in a second that were answered beside clients without end, theirs included. The program has one
/// thread for them.
fn of_a_thread(endless: &Compared) -> f64 {
    endless.attack + endless.under.per_second
}

/// Returns the limits that an attack or ailment violates: readiness at any size, times and memory at full size only.
pub(crate) fn missed_in_turns(args: &Args, part: Part, compared: &Compared) -> Vec<String> {
    let mut missed = Vec::new();
    let mut check = |is_met: bool, what: &str| {
        if !is_met {
            missed.push(format!("missed: {what}, beside {}", part.cause()));
        }
    };
    let (unready, looks) = compared.unready;
    check(unready == 0 && looks > 0, "readiness");
    check(compared.unnoticed == 0, "an ailment that each of its Clusters has");
    if let Some(targets) = targets(args) {
        check(compared.ratio() <= part.limit(), "others' p99");
        check(compared.peak <= MOST_MEMORY, "the chart's limit of memory");
        let least = targets.of_a_thread.filter(|_| part == Part::EndlessClients);
        check(least.is_none_or(|least| of_a_thread(compared) >= least), "the calls of a thread");
    }
    missed
}

/// Returns the violated limits. Times and memory have targets at full size only; counts at any.
pub(crate) fn missed(args: &Args, [one, all]: [&Figures; 2], costs: [Duration; 2]) -> Vec<String> {
    let mut missed = Vec::new();
    let mut check = |is_met: bool, what: &str| {
        if !is_met {
            missed.push(format!("missed: {what}"));
        }
    };
    check(all.watches.management == one.watches.management, "as many watches of the management cluster as with one");
    check(all.watches.workload == 1, "one watch for each workload cluster");
    if let Some(targets) = targets(args) {
        check(all.resident <= targets.resident, "resident memory");
        check(all.ready <= targets.ready, "the time until it is ready");
        check(all.nodes <= targets.nodes, "the time until all Nodes are in sync");
        check(all.plain.p99 <= targets.p99, "the p99");
        check(events::ratio(costs) <= EVENT, "the cost of an event");
    }
    missed
}
