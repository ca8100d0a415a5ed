//! Runs worlds, one seed after the other, each in a process of its own, since some libraries keep counters for the
//! whole process. A seed that breaks a rule is printed with the shortest history that still breaks it.

use std::{
    collections::BTreeSet,
    io::Read as _,
    os::unix::process::ExitStatusExt as _,
    process::{Command, ExitCode, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use simulation::{Habits, Outcome, Plan, shrink};

/// A fifth of a world's time is allocation, and this allocator makes a world a sixth faster than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the whole program under seeds: copies of it, an API, controllers, and who calls them, in virtual time.
///
/// Of the seeds that break a rule the first one is shortened, for each rule, to the shortest story found that still
/// breaks it. The same seed gives the same world, byte for byte. The exit code is 0 if no rule was broken, 1 if one
/// was, and 2 if a world couldn't be run.
#[derive(Debug, Parser)]
#[command(version)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
struct Arguments {
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The number of seeds from there.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    seeds: u64,
    /// Copies of the program; drawn from the seed if not given.
    #[arg(long, value_name = "COUNT")]
    copies: Option<usize>,
    /// Virtual seconds with faults and commands.
    #[arg(long, default_value_t = 2700)]
    seconds: u64,
    /// Virtual seconds of quiet after them, in which all must come to rest.
    #[arg(long, default_value_t = 900)]
    quiet: u64,
    /// Controllers and Machines that do as they should, or views that lag, writes that fail and Machines that fail to
    /// join or to go; drawn from the seed if not given.
    #[arg(long, value_name = "WAY")]
    controllers: Option<Habits>,
    /// Puts a MachinePool among the groups of a quarter of the worlds.
    #[arg(long)]
    pools: bool,
    /// Lets Nodes register with the taint that kubeadm gives them, until Cluster API has linked them to their Machines.
    #[arg(long)]
    kubeadm: bool,
    /// Two or three Clusters, each with a workload API and a Cluster Autoscaler of its own, which copies serve as a
    /// fleet.
    #[arg(long)]
    fleet: bool,
    /// Lets copies remember Nodes, whose memory differs, while somebody spoils the ConfigMap and changes templates.
    #[arg(long)]
    remember: bool,
    /// Prints all that happens, for one seed.
    #[arg(long)]
    trace: bool,
    /// Processes at a time; as many as there are processors if not given.
    #[arg(long, value_name = "COUNT")]
    jobs: Option<usize>,
    /// Ends with the first seed that breaks a rule. Those before it are run to their end, so that it is the first of
    /// all.
    #[arg(long)]
    until_found: bool,
    /// Seconds of processor time for one world: one that goes on for longer stands still, which breaks a rule too. So
    /// does one that takes ten times as long by the clock.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    patience: u64,
    /// Leaves what was found as it is, instead of looking for a shorter story.
    #[arg(long)]
    no_shrinking: bool,
    /// Minutes after which the shortest story found so far is printed, for each rule.
    #[arg(long, default_value_t = 10, value_name = "MINUTES")]
    shrink_minutes: u64,
    /// Runs each seed twice, and compares the traces.
    #[arg(long)]
    twice: bool,
    /// Prints the outcome as JSON, for one seed.
    #[arg(long, hide = true)]
    json: bool,
    /// Faults that don't strike and acts that are left out, as `request 1 17`.
    #[arg(long = "skip", value_name = "DECISION")]
    skipped: Vec<String>,
}

impl Arguments {
    /// Returns the arguments that reproduce a world from the same seed.
    fn of_worlds(&self) -> Vec<String> {
        let mut given = vec![format!("--seconds={}", self.seconds), format!("--quiet={}", self.quiet)];
        given.extend(self.copies.map(|copies| format!("--copies={copies}")));
        given.extend(self.controllers.map(|habits| format!("--controllers={habits}")));
        given.extend(self.pools.then(|| "--pools".to_owned()));
        given.extend(self.kubeadm.then(|| "--kubeadm".to_owned()));
        given.extend(self.fleet.then(|| "--fleet".to_owned()));
        given.extend(self.remember.then(|| "--remember".to_owned()));
        given
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = if arguments.json || arguments.trace { one(&arguments) } else { many(&arguments) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn plan(arguments: &Arguments, seed: u64) -> Result<Plan> {
    Ok(Plan {
        copies: arguments.copies,
        seconds: arguments.seconds,
        quiet: arguments.quiet,
        habits: arguments.controllers,
        pools: arguments.pools,
        kubeadm: arguments.kubeadm,
        fleet: arguments.fleet,
        remember: arguments.remember,
        skipped: arguments.skipped.iter().map(|text| text.parse()).collect::<Result<_>>()?,
        traced: arguments.trace,
        ..Plan::of(seed)
    })
}

/// Runs one world in this process.
fn one(arguments: &Arguments) -> Result<bool> {
    ensure!(arguments.seeds == 1, "--trace and --json are for one seed: leave --seeds out");
    if arguments.json {
        limit_processor_time(arguments.patience)?;
    }
    let report = simulation::run(&plan(arguments, arguments.seed)?)?;
    for line in &report.lines {
        println!("{line}");
    }
    let outcome = Outcome::of(arguments.seed, &report);
    if arguments.json {
        println!("{}", outcome.to_json());
    } else {
        print(&outcome);
    }
    Ok(outcome.findings.is_empty())
}

/// Runs many worlds, several at a time.
fn many(arguments: &Arguments) -> Result<bool> {
    let jobs = arguments.jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {msg}, {eta} left")?;
    let bar = ProgressBar::new(arguments.seeds).with_style(style).with_message("nothing found");
    let (next, found, began) = (AtomicU64::new(0), Mutex::new(Vec::new()), Instant::now());
    let end = AtomicU64::new(arguments.seed + arguments.seeds);
    let sums = Mutex::new(Sums::default());
    let work = || -> Result<()> {
        loop {
            let seed = arguments.seed + next.fetch_add(1, Ordering::Relaxed);
            if seed >= end.load(Ordering::Relaxed) {
                return Ok(());
            }
            let outcome = child(arguments, seed, &BTreeSet::new())?;
            if arguments.twice {
                let again = child(arguments, seed, &BTreeSet::new())?;
                ensure!(
                    again.hash == outcome.hash,
                    "seed {seed} gives two traces: {} and {}",
                    outcome.hash,
                    again.hash
                );
            }
            sums.lock().add(&outcome);
            if !outcome.findings.is_empty() {
                if arguments.until_found {
                    end.fetch_min(seed, Ordering::Relaxed);
                }
                let mut found = found.lock();
                bar.suspend(|| print(&outcome));
                found.push(outcome);
                bar.set_message(format!("{} found", found.len()));
            }
            bar.inc(1);
        }
    };
    let ended: Vec<Result<()>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|it| it.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a worker panicked")))).collect()
    });
    bar.finish_and_clear();
    for ended in ended {
        ended?;
    }
    let (mut found, sums) = (found.into_inner(), sums.into_inner());
    found.sort_by_key(|outcome| outcome.seed);
    let seconds = began.elapsed().as_secs_f64();
    let virtual_hours = f64::from(u32::try_from(sums.worlds * (arguments.seconds + arguments.quiet))?) / 3600.0;
    println!(
        "{} seeds, {virtual_hours:.1} virtual hours in {seconds:.0} s: {} calls, {} commands, {} requests, {} faults; {} seeds broke a rule",
        sums.worlds,
        sums.calls,
        sums.commands,
        sums.requests,
        sums.faults,
        found.len()
    );
    for (cause, count) in &sums.exceptions {
        println!("  {count} times: {cause}");
    }
    let mut rules = BTreeSet::new();
    for outcome in found.iter().filter(|outcome| !arguments.no_shrinking && rules.insert(outcome.rule())) {
        shorten(arguments, outcome)?;
    }
    Ok(found.is_empty())
}

#[derive(Default)]
struct Sums {
    worlds: u64,
    calls: u64,
    commands: u64,
    requests: u64,
    faults: usize,
    exceptions: std::collections::BTreeMap<String, u64>,
}

impl Sums {
    fn add(&mut self, outcome: &Outcome) {
        self.worlds += 1;
        self.calls += outcome.calls;
        self.commands += outcome.commands;
        self.requests += outcome.requests;
        self.faults += outcome.faults();
        for (cause, count) in &outcome.exceptions {
            *self.exceptions.entry(cause.clone()).or_default() += count;
        }
    }
}

/// Runs one world in a process of its own.
fn child(arguments: &Arguments, seed: u64, skipped: &BTreeSet<simulation::Decision>) -> Result<Outcome> {
    let mut command = Command::new(std::env::current_exe().context("this program's own path")?);
    command.args(["--json", "--seed", &seed.to_string(), "--patience", &arguments.patience.to_string()]);
    // A world takes seconds: returning memory to the system and requesting it again costs a seventh of its time.
    command.env("MIMALLOC_PURGE_DELAY", "-1");
    command.args(arguments.of_worlds());
    for decision in skipped {
        command.args(["--skip", &decision.to_string()]);
    }
    for decision in &arguments.skipped {
        command.args(["--skip", decision]);
    }
    let mut world = command.stdout(Stdio::piped()).spawn().context("a process for a world")?;
    let mut out = world.stdout.take().context("the output of a world")?;
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    // Beside other programs a world may wait long for a processor.
    let (began, longest) = (Instant::now(), Duration::from_secs(arguments.patience.saturating_mul(10)));
    while !reading.is_finished() {
        if began.elapsed() > longest {
            world.kill()?;
            world.wait()?;
            return Ok(endless(seed, &format!("{} s", longest.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let status = world.wait()?;
    if status.signal() == Some(Signal::XCPU.as_raw()) {
        return Ok(endless(seed, &format!("{} s of processor time", arguments.patience)));
    }
    let text = reading.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
    Outcome::from_json(&text).with_context(|| format!("seed {seed} ended with {status}: {text}"))
}

/// Returns the outcome of a world that had no end.
fn endless(seed: u64, after: &str) -> Outcome {
    let what = format!("Endless at 0 ms: the world was still running after {after}");
    Outcome { seed, findings: vec![what], ..Outcome::default() }
}

/// Ends this process, without a dump of its memory, once a world in it has had its processor time.
fn limit_processor_time(patience: u64) -> Result<()> {
    for (resource, most) in [(Resource::Core, 0), (Resource::Cpu, patience)] {
        let known = getrlimit(resource);
        let most = known.maximum.map_or(most, |maximum| most.min(maximum));
        setrlimit(resource, Rlimit { current: Some(most), ..known }).context("a limit of processor time")?;
    }
    Ok(())
}

fn print(outcome: &Outcome) {
    println!(
        "seed {}: trace {}, {} calls, {} requests, {} faults",
        outcome.seed,
        outcome.hash,
        outcome.calls,
        outcome.requests,
        outcome.faults()
    );
    for finding in &outcome.findings {
        println!("  {finding}");
    }
}

/// Removes faults and acts as long as the same rule is broken.
fn shorten(arguments: &Arguments, outcome: &Outcome) -> Result<()> {
    let Some(rule) = outcome.rule() else { return Ok(()) };
    println!("looking for the shortest story of seed {} that breaks {rule}", outcome.seed);
    let limit = Duration::from_secs(arguments.shrink_minutes.saturating_mul(60));
    let (began, mut is_cut_short) = (Instant::now(), false);
    let kept = shrink(&outcome.struck, |kept| {
        is_cut_short = began.elapsed() >= limit;
        if is_cut_short {
            return Ok(false);
        }
        let skipped: BTreeSet<_> = outcome.struck.iter().filter(|it| !kept.contains(it)).copied().collect();
        Ok(child(arguments, outcome.seed, &skipped)?.ends_like(outcome))
    })?;
    if is_cut_short {
        println!("there may be a shorter one: --shrink-minutes is over");
    }
    let skipped: BTreeSet<_> = outcome.struck.iter().filter(|it| !kept.contains(it)).copied().collect();
    print(&child(arguments, outcome.seed, &skipped)?);
    println!("with {} of {} faults and acts: {}", kept.len(), outcome.struck.len(), list(kept.iter()));
    let asked: Vec<_> = arguments.skipped.iter().map(|it| format!("--skip '{it}'")).collect();
    println!(
        "to see it: --seed {} --trace {}",
        outcome.seed,
        list(arguments.of_worlds().into_iter().chain(asked).chain(skipped.iter().map(|it| format!("--skip '{it}'"))))
    );
    Ok(())
}

fn list<T: ToString>(items: impl Iterator<Item = T>) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(" ")
}
