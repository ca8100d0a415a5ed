//! The autoscalers in a process of their own, and turns with and without an attack on their provider.

use std::{
    process::{Command as Process, Stdio},
    thread,
    time::{Duration, Instant},
};

use testkit::Piped;

use crate::{
    Args,
    ailments::Ailing,
    callers::{Autoscaler, MEASURE, Plan, Report},
    parts::Part,
    program::Program,
    world::World,
};

/// The number of calls of a loop, besides one for each Node.
const CALLS: usize = 6;
/// The longest time until all are served.
const PATIENCE: Duration = Duration::from_secs(300);
/// The time for which a change settles before calls are measured.
const SETTLE: Duration = Duration::from_secs(1);
/// The shortest pause between two loops.
const SHORTEST: Duration = Duration::from_millis(50);

/// The median, the p99 and the rate of calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Calls {
    pub(crate) median: u32,
    pub(crate) p99: u32,
    pub(crate) per_second: f64,
}

/// The calls with and without an attack or ailment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Compared {
    pub(crate) without: Calls,
    pub(crate) under: Calls,
    /// The calls of the attack in a second.
    pub(crate) attack: f64,
    /// The requests that met an ailment, or the changes that are one.
    pub(crate) met: usize,
    /// The Clusters of whose ailment the program never noticed anything.
    pub(crate) unnoticed: usize,
    /// The looks at which the program wasn't ready, and all.
    pub(crate) unready: (usize, usize),
    /// The peak of its memory in KiB.
    pub(crate) peak: u64,
}

impl Compared {
    /// Returns the ratio of both p99.
    pub(crate) fn ratio(&self) -> f64 {
        f64::from(self.under.p99) / f64::from(self.without.p99.max(1))
    }
}

/// The running autoscalers.
pub(crate) struct Turns<'w> {
    world: &'w World<'w>,
    program: &'w Program,
    callers: Playing,
    turn: Duration,
    plan: Plan,
}

struct Playing {
    process: Piped,
    commands: u64,
}

impl Playing {
    fn start(world: &World<'_>, name: &str, plan: &Plan) -> Self {
        let folder = world.write(name, plan);
        Self::of(Process::new(std::env::current_exe().expect("the bench")).arg("--callers").arg(folder))
    }

    /// Starts attackers. A single one has the lowest priority: elsewhere it has processors of its own, so that here it
    /// may keep none from the measured autoscalers, which come [before it](Policy::RealTime).
    fn start_attack(world: &World<'_>, plan: &Plan) -> Self {
        let folder = world.write("endless", plan);
        let bench = std::env::current_exe().expect("the bench");
        let mut command = Process::new("chrt");
        command.args([if plan.callers.len() == 1 { "--idle" } else { "--other" }, "0"]);
        Self::of(command.arg(bench).arg("--callers").arg(folder))
    }

    fn of(command: &mut Process) -> Self {
        Self { process: Piped::start(command.stderr(Stdio::inherit())), commands: 0 }
    }

    fn next(&mut self) -> Report {
        let line = self.process.line();
        let report: Report = serde_json::from_str(&line).expect("a report of the autoscalers");
        assert_eq!(report.crossed, 0, "an answer names something of another Cluster");
        report
    }

    /// Measures anew, and returns the report of that.
    fn measure(&mut self) -> Report {
        self.process.write_line(MEASURE);
        self.commands += 1;
        loop {
            let report = self.next();
            if report.commands == self.commands {
                return report;
            }
        }
    }
}

impl<'w> Turns<'w> {
    pub(crate) fn start(world: &'w World<'w>, program: &'w Program, args: &Args) -> Self {
        let turn = Duration::from_secs(args.turn);
        let calls = args.clusters * (CALLS + args.machines);
        let pause = Duration::from_secs_f64(calls as f64 / args.rate as f64).max(SHORTEST);
        let plan = Plan { provider: program.grpc, pause, report: turn, ..world.plan.clone() };
        let callers = Playing::start(world, "all", &plan);
        Self { world, program, callers, turn, plan }
    }

    /// Waits until all autoscalers are served, and returns the program's age then and the calls of a turn.
    pub(crate) fn until_served(&mut self) -> (Duration, Calls) {
        let (began, all) = (Instant::now(), self.plan.callers.len());
        loop {
            let report = self.callers.next();
            if report.served == all {
                let age = self.program.age();
                let report = self.callers.measure();
                return (age, self.calls(&report));
            }
            assert!(began.elapsed() < PATIENCE, "only {} of {all} are served", report.served);
        }
    }

    fn calls(&self, report: &Report) -> Calls {
        let per_second = report.calls as f64 / self.turn.as_secs_f64();
        Calls { median: report.median, p99: report.p99, per_second }
    }

    /// Returns the calls of a turn, once a change has settled.
    fn measured(&mut self) -> Calls {
        thread::sleep(SETTLE);
        let report = self.callers.measure();
        self.calls(&report)
    }

    /// Measures in turns without an attack and with it, which `set` begins and ends.
    fn with(&mut self, count: usize, mut set: impl FnMut(bool)) -> Compared {
        self.program.forget_peak();
        let readiness = self.program.readiness(self.world);
        let (mut without, mut under) = (Vec::new(), Vec::new());
        for _ in 0..count {
            without.push(self.measured());
            set(true);
            under.push(self.measured());
            set(false);
        }
        let (unready, peak) = (readiness.missed(), self.program.memory("VmHWM"));
        Compared { without: median(without), under: median(under), unready, peak, ..Compared::default() }
    }

    /// Measures in turns without and with an ailment of some Clusters. Callers come first meanwhile, and the APIs of
    /// this process last: elsewhere they are servers of other machines, and take no processor from the program.
    pub(crate) fn with_ailment(&mut self, part: Part, count: usize) -> Compared {
        let mut ailing = Ailing::new(self.world, part);
        let callers = self.callers.process.process().id();
        let schedule = |callers_policy, own_policy| {
            schedule(callers, callers_policy);
            schedule(std::process::id(), own_policy);
        };
        schedule(Policy::RealTime, Policy::Idle);
        let compared = self.with(count, |is_on| ailing.set(is_on));
        schedule(Policy::Usual, Policy::Usual);
        Compared { met: ailing.count(), unnoticed: ailing.unnoticed(), ..compared }
    }

    /// Measures in turns without and with autoscalers of the last Clusters, so many, that call without end. The program
    /// has a processor of its own meanwhile, so that times show what it makes calls wait for, and not the scheduler.
    pub(crate) fn with_endless(&mut self, count: usize, clients: usize) -> Compared {
        let last = self.plan.callers.iter().rev().take(clients).cloned();
        let endless = last.map(|caller| Autoscaler { is_endless: true, is_measured: false, ..caller });
        let plan = Plan { callers: endless.collect(), pause: SHORTEST, ..self.plan.clone() };
        let (mut playing, mut attack) = (None::<Playing>, 0.0);
        let (turn, world) = (self.turn, self.world);
        let (program, others) = (self.program.id(), [self.callers.process.process().id(), std::process::id()]);
        let last = thread::available_parallelism().map_or(0, |count| count.get() - 1);
        if last > 0 {
            run_on("0", &[program]);
            run_on(&format!("1-{last}"), &others);
        }
        schedule(self.callers.process.process().id(), Policy::RealTime);
        let compared = self.with(count, |is_on| {
            if is_on {
                playing = Some(Playing::start_attack(world, &plan));
            } else if let Some(mut playing) = playing.take() {
                attack = playing.next().endless as f64 / turn.as_secs_f64();
            }
        });
        schedule(self.callers.process.process().id(), Policy::Usual);
        run_on(&format!("0-{last}"), &[&[program], others.as_slice()].concat());
        Compared { attack, ..compared }
    }
}

/// The order in which processes get processors.
#[derive(Clone, Copy, Debug)]
enum Policy {
    Usual,
    /// At once: Linux with `PREEMPT_LAZY` lets even a thread of idle priority go on for up to 4 ms before others.
    RealTime,
    /// After all others.
    Idle,
}

/// Schedules all threads of a process, and those that they start.
fn schedule(process: u32, policy: Policy) {
    let (flag, priority) = match policy {
        Policy::Usual => ("--other", "0"),
        Policy::RealTime => ("--rr", "1"),
        Policy::Idle => ("--idle", "0"),
    };
    let mut command = Process::new("chrt");
    command.args(["--all-tasks", flag, "--pid", priority, &process.to_string()]);
    assert!(command.status().expect("chrt").success(), "{process} can't be scheduled so: that needs CAP_SYS_NICE");
}

/// Lets all threads of processes, and what they start, run on these processors alone.
fn run_on(processors: &str, processes: &[u32]) {
    for process in processes {
        let mut command = Process::new("taskset");
        command.args(["--all-tasks", "--cpu-list", "--pid", processors, &process.to_string()]).stdout(Stdio::null());
        assert!(command.status().expect("taskset").success(), "process {process} doesn't move to {processors}");
    }
}

/// Returns the turn with the median of the p99s.
fn median(mut turns: Vec<Calls>) -> Calls {
    turns.sort_by_key(|calls| calls.p99);
    turns.get(turns.len() / 2).copied().unwrap_or_default()
}
