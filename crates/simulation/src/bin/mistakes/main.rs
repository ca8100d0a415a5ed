//! Puts known mistakes back, one at a time, and counts the seeds that the simulation needs to find each, which shows
//! that it finds mistakes. Each is a patch of `crates/simulation/mistakes`, applied to a copy of the tree and never to
//! the tree itself. Most of them share one program, since a build takes minutes and most mistakes are found in seconds.

mod switch;

use std::{
    collections::HashMap,
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Parser};
use simulation::Habits;

use self::switch::{Changes, Switched};

/// Puts known mistakes back, one at a time, and prints a row for each: the mistake, how many seeds it took to find it,
/// and the rule that was broken.
///
/// Worlds are as `simulation` makes them, from seed 1. A seed that breaks a rule without the mistake too doesn't count.
/// The exit code is 0 if each was found, 1 if one wasn't, and 2 if one couldn't be looked for.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The mistakes to look for, by name, number or both, in this order; all if not given.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// The number of seeds that are tried for each.
    #[arg(long, value_name = "COUNT", default_value_t = 300)]
    seeds: u64,
    /// Prints the mistakes and ends.
    #[arg(long)]
    list: bool,
    /// Checks that each mistake still compiles, and ends.
    #[arg(long, conflicts_with_all = ["list", "only"])]
    check: bool,
    #[command(flatten)]
    worlds: Worlds,
    /// Mistakes that are looked for at a time; as many as there are processors if not given.
    #[arg(long, value_name = "COUNT")]
    jobs: Option<usize>,
}

/// The worlds that a mistake is looked for in.
#[derive(Debug, Args)]
struct Worlds {
    /// Controllers and Machines that do as they should, or views that lag, writes that fail and Machines that fail to
    /// join or to go; drawn from the seed if not given.
    #[arg(long, value_name = "WAY")]
    controllers: Option<Habits>,
    /// Puts a MachinePool among the groups of a quarter of the worlds.
    #[arg(long)]
    pools: bool,
    /// Worlds of a fleet of Clusters.
    #[arg(long)]
    fleet: bool,
}

/// A mistake that can be put back.
struct Mistake {
    /// The number and a few words.
    name: String,
    /// The mistake in a sentence.
    what: String,
    patch: PathBuf,
}

/// The first finding of a mistake.
struct Found {
    /// The first seed that breaks a rule.
    seed: u64,
    /// The rule that it broke.
    rule: String,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).context("the workspace's directory")?;
    let all = mistakes(root)?;
    let mistakes = chosen(&all, &arguments.only)?;
    if arguments.list {
        for mistake in &mistakes {
            println!("{}: {}", mistake.name, mistake.what);
        }
        return Ok(true);
    }
    let bench = Bench::new(root)?;
    if arguments.check {
        return bench.check(&all).map(|()| true);
    }
    let programs = bench.build(&all, &mistakes)?;
    let found = search_all(arguments, &mistakes, &programs)?;
    println!("| mistake | seeds needed | rule |\n|---|---|---|");
    for (mistake, found) in mistakes.iter().zip(&found) {
        let (seeds, rule) = match found {
            Some(Found { seed, rule }) => (seed.to_string(), format!("`{rule}`")),
            None => (format!("not in {}", arguments.seeds), String::new()),
        };
        println!("| `{}`: {} | {seeds} | {rule} |", mistake.name, mistake.what);
    }
    Ok(found.iter().all(Option::is_some))
}

/// Searches for several mistakes at a time, each on one processor, so that the first seed that finds a mistake is
/// exact.
fn search_all(arguments: &Arguments, mistakes: &[&Mistake], programs: &Programs) -> Result<Vec<Option<Found>>> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Option<Found>)>> {
        let mut ended = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(mistake) = mistakes.get(number) else { return Ok(ended) };
            let began = Instant::now();
            let program = programs.with(mistake);
            let found = search(arguments, &program, &programs.without()).with_context(|| mistake.name.clone())?;
            let end = found.as_ref().map_or_else(
                || format!("not in {} seeds", arguments.seeds),
                |Found { seed, rule }| format!("seed {seed}, {rule}"),
            );
            eprintln!("{}: {end}, {:.0} s", mistake.name, began.elapsed().as_secs_f64());
            ended.push((number, found));
        }
    };
    let processors = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let jobs = arguments.jobs.unwrap_or_else(processors).max(1);
    let ended: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let mut found: Vec<_> = mistakes.iter().map(|_| None).collect();
    for worker in ended {
        let worker = worker.map_err(|_| anyhow::anyhow!("a search panicked"))?;
        for (number, one) in worker? {
            found[number] = one;
        }
    }
    Ok(found)
}

/// Returns all mistakes in the order of their numbers.
fn mistakes(root: &Path) -> Result<Vec<Mistake>> {
    let mut mistakes = Vec::new();
    for entry in fs::read_dir(root.join("crates/simulation/mistakes"))? {
        let patch = entry?.path();
        let name = patch.file_stem().and_then(|name| name.to_str()).context("a patch without a name")?.to_owned();
        if patch.extension().is_none_or(|extension| extension != "patch") {
            continue;
        }
        let text = fs::read_to_string(&patch)?;
        let what = text.lines().next().unwrap_or_default().to_owned();
        mistakes.push(Mistake { name, what, patch });
    }
    mistakes.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(mistakes)
}

/// Returns the mistakes that `only` names, in its order, or all if it is empty.
fn chosen<'a>(mistakes: &'a [Mistake], only: &[String]) -> Result<Vec<&'a Mistake>> {
    if only.is_empty() {
        return Ok(mistakes.iter().collect());
    }
    let is = |mistake: &Mistake, name: &str| {
        mistake.name == name || mistake.name.split_once('-').is_some_and(|parts| parts.0 == name || parts.1 == name)
    };
    let find = |name: &String| {
        let found = mistakes.iter().find(|mistake| is(mistake, name));
        found.with_context(|| format!("there is no mistake {name}: --list has their names"))
    };
    only.iter().map(find).collect()
}

/// A program, and the mistake that it activates.
struct Program {
    path: PathBuf,
    choice: Option<String>,
}

/// The programs that are searched.
struct Programs {
    /// The program with all mistakes that can coexist, none of them active by default.
    switched: PathBuf,
    /// The programs of the other mistakes, by name.
    own: HashMap<String, PathBuf>,
}

impl Programs {
    fn without(&self) -> Program {
        Program { path: self.switched.clone(), choice: None }
    }

    fn with(&self, mistake: &Mistake) -> Program {
        match self.own.get(&mistake.name) {
            Some(path) => Program { path: path.clone(), choice: None },
            None => Program { path: self.switched.clone(), choice: Some(mistake.name.clone()) },
        }
    }
}

/// The workspace in which mistakes are put back: a copy of the tree, and its build output.
struct Bench {
    /// The commit of the tree with its uncommitted changes; new files must be known to git.
    commit: String,
    tree: PathBuf,
    target: PathBuf,
    /// The directory of the built programs.
    kept: PathBuf,
}

impl Bench {
    fn new(root: &Path) -> Result<Self> {
        let kept = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let kept = std::path::absolute(kept)?.join("mistakes");
        // The target directory must not be the tree's own. Otherwise Cargo mistakes one build for the other by file
        // times.
        let (tree, target) = (kept.join("tree"), kept.join("target"));
        fs::create_dir_all(&kept)?;
        if !tree.join(".git").exists() {
            let to = tree.to_str().context("a path that is no text")?;
            git(root, &["clone", "--quiet", "--shared", "--no-checkout", ".", to])?;
        }
        // The clone shares the git objects of its source, which may be a clone that no longer exists.
        let objects = git(root, &["rev-parse", "--path-format=absolute", "--git-path", "objects"])?;
        fs::write(tree.join(".git/objects/info/alternates"), objects + "\n")?;
        let changed = git(root, &["stash", "create"])?;
        let commit = if changed.is_empty() { git(root, &["rev-parse", "HEAD"])? } else { changed };
        Ok(Self { commit, tree, target, kept })
    }

    /// Resets the copy of the tree to the state without a mistake.
    fn restore(&self) -> Result<()> {
        git(&self.tree, &["checkout", "--quiet", "--force", "--detach", &self.commit]).map(drop)
    }

    fn put_back(&self, mistake: &Mistake) -> Result<()> {
        let patch = mistake.patch.to_str().context("a path that is no text")?;
        git(&self.tree, &["apply", patch]).map(drop)
    }

    /// Returns the files that a mistake changes.
    fn changes(&self, mistake: &Mistake) -> Result<Changes> {
        self.put_back(mistake)?;
        let mut changes = Changes::new();
        for name in git(&self.tree, &["diff", "--name-only"])?.lines() {
            let path = self.tree.join(name);
            let after = fs::read_to_string(&path)?;
            git(&self.tree, &["checkout", "--quiet", "--", name])?;
            changes.insert(path.clone(), (fs::read_to_string(path)?, after));
        }
        Ok(changes)
    }

    /// Puts all mistakes that can coexist into the tree, and returns the others.
    fn put_all<'a>(&self, all: &'a [Mistake]) -> Result<Vec<&'a Mistake>> {
        self.restore()?;
        let mut switched = Switched::default();
        let mut alone = Vec::new();
        for mistake in all {
            let changes = self.changes(mistake).with_context(|| mistake.name.clone())?;
            if !switched.add(&mistake.name, &changes).with_context(|| mistake.name.clone())? {
                alone.push(mistake);
            }
        }
        for (path, text) in switched.texts() {
            fs::write(path, text)?;
        }
        Ok(alone)
    }

    /// Checks that all mistakes compile.
    fn check(&self, all: &[Mistake]) -> Result<()> {
        let alone = self.put_all(all)?;
        self.cargo("check").context("those that can stand side by side")?;
        for mistake in alone {
            self.restore()?;
            self.put_back(mistake)?;
            self.cargo("check").with_context(|| mistake.name.clone())?;
        }
        Ok(())
    }

    /// Builds one program of all mistakes that can coexist, and one for each other chosen mistake.
    fn build(&self, all: &[Mistake], chosen: &[&Mistake]) -> Result<Programs> {
        let mut alone = self.put_all(all)?;
        let together = all.len() - alone.len();
        alone.retain(|mistake| chosen.iter().any(|chosen| chosen.name == mistake.name));
        eprintln!("building one program of {together} mistakes, and {} of one mistake each", alone.len());
        let switched = self.program("switched")?;
        let mut own = HashMap::new();
        for mistake in alone {
            self.restore()?;
            self.put_back(mistake)?;
            let path = self.program(&mistake.name).with_context(|| mistake.name.clone())?;
            own.insert(mistake.name.clone(), path);
        }
        Ok(Programs { switched, own })
    }

    /// Builds the tree as it is, and keeps the program.
    fn program(&self, name: &str) -> Result<PathBuf> {
        self.cargo("build")?;
        let built = self.target.join("simulation/simulation");
        let kept = self.kept.join(name);
        fs::copy(&built, &kept).with_context(|| built.display().to_string())?;
        Ok(kept)
    }

    /// Builds or checks the tree as it is.
    fn cargo(&self, command: &str) -> Result<()> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args([command, "--locked", "--profile", "simulation", "-p", "simulation", "--bin", "simulation"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .output()
            .context("cargo")?;
        ensure!(output.status.success(), "it doesn't build: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

fn git(directory: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(directory).output().context("git")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {error}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Returns the first seed that breaks a rule with the mistake and none without it.
fn search(arguments: &Arguments, program: &Program, plain: &Program) -> Result<Option<Found>> {
    let mut first = 1;
    while first <= arguments.seeds {
        let found = worlds(arguments, program, first, arguments.seeds + 1 - first)?;
        let Some(found) = found else { return Ok(None) };
        if worlds(arguments, plain, found.seed, 1)?.is_none() {
            return Ok(Some(found));
        }
        first = found.seed + 1;
    }
    Ok(None)
}

/// Runs worlds until one breaks a rule.
fn worlds(arguments: &Arguments, program: &Program, seed: u64, seeds: u64) -> Result<Option<Found>> {
    let mut command = Command::new(&program.path);
    command.env_remove(switch::CHOICE).envs(program.choice.iter().map(|choice| (switch::CHOICE, choice)));
    command.args(["--jobs", "1", "--until-found", "--no-shrinking"]);
    command.args(["--seed", &seed.to_string(), "--seeds", &seeds.to_string()]);
    if arguments.worlds.pools {
        command.arg("--pools");
    }
    if arguments.worlds.fleet {
        command.arg("--fleet");
    }
    if let Some(habits) = arguments.worlds.controllers {
        command.args(["--controllers", &habits.to_string()]);
    }
    let output = command.stderr(Stdio::null()).output().context("the simulation")?;
    let text = String::from_utf8(output.stdout)?;
    match output.status.code() {
        Some(0) => Ok(None),
        Some(1) => Ok(Some(lowest(&text).with_context(|| format!("no seed in {text}"))?)),
        _ => anyhow::bail!("the simulation ended with {}: {text}", output.status),
    }
}

/// Returns the lowest printed seed, with the first rule that it broke.
fn lowest(text: &str) -> Option<Found> {
    let mut all = Vec::new();
    for line in text.lines() {
        if let Some(seed) = line.strip_prefix("seed ").and_then(|rest| rest.split(':').next()) {
            all.push(Found { seed: seed.parse().ok()?, rule: String::new() });
        } else if let (Some(finding), Some(found)) = (line.strip_prefix("  "), all.last_mut())
            && found.rule.is_empty()
        {
            finding.split(' ').next().unwrap_or_default().clone_into(&mut found.rule);
        }
    }
    all.into_iter().min_by_key(|found| found.seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_seed_is_read() {
        let text = "seed 9: trace 0, 1 calls\n  Rest at 5 ms: left\nseed 4: trace 0\n  Phases at 1 ms: a\n  Rest at 2 ms: b\n10 seeds\n  2 times: c";
        let found = lowest(text).map(|found| (found.seed, found.rule));
        assert_eq!(found, Some((4, "Phases".to_owned())));
    }
}
