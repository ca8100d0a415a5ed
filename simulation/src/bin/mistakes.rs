//! Puts known mistakes back, one at a time, and looks how many seeds the simulation needs to find each: what shows that it
//! finds mistakes. Each is a patch of `simulation/mistakes`, applied to a copy of the tree and never to the tree itself.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use simulation::Habits;

/// Puts known mistakes back, one at a time, and prints a row for each: the mistake, how many seeds it took to find it, and
/// the rule that was broken.
///
/// Worlds are as `simulation` makes them, from seed 1. A seed that breaks a rule without the mistake too doesn't count. The
/// exit code is 0 if each was found, 1 if one wasn't, and 2 if one couldn't be looked for.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// The mistakes to put back, by name, number or both; all if not given.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// The number of seeds that are tried for each.
    #[arg(long, value_name = "COUNT", default_value_t = 300)]
    seeds: u64,
    /// Prints the mistakes and ends.
    #[arg(long)]
    list: bool,
    /// Controllers and Machines that do as they should, or views that lag, writes that fail and Machines that fail to join
    /// or to go; drawn from the seed if not given.
    #[arg(long, value_name = "WAY")]
    controllers: Option<Habits>,
    /// Puts a MachinePool among the groups of a quarter of the worlds.
    #[arg(long)]
    pools: bool,
    /// Processes at a time; as many as there are processors if not given.
    #[arg(long, value_name = "COUNT")]
    jobs: Option<usize>,
}

/// A mistake that can be put back.
struct Mistake {
    /// Its number and a few words.
    name: String,
    /// The mistake in a sentence.
    what: String,
    patch: PathBuf,
}

/// The first finding of a mistake.
struct Found {
    /// The first seed.
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace's directory")?;
    let mistakes = mistakes(root, &arguments.only)?;
    if arguments.list {
        for mistake in &mistakes {
            println!("{}: {}", mistake.name, mistake.what);
        }
        return Ok(true);
    }
    let bench = Bench::new(root)?;
    let plain = bench.build(None)?;
    println!("| mistake | seeds needed | rule |\n|---|---|---|");
    let mut all_found = true;
    for mistake in &mistakes {
        let began = Instant::now();
        let program = bench.build(Some(mistake)).with_context(|| mistake.name.clone())?;
        let built = began.elapsed();
        let found = search(arguments, &program, &plain).with_context(|| mistake.name.clone())?;
        all_found &= found.is_some();
        let (seeds, rule) = match found {
            Some(Found { seed, rule }) => (seed.to_string(), rule),
            None => (format!("not in {}", arguments.seeds), String::new()),
        };
        println!("| `{}`: {} | {seeds} | {rule} |", mistake.name, mistake.what);
        eprintln!(
            "{}: built in {:.0} s, {:.0} s in all",
            mistake.name,
            built.as_secs_f64(),
            began.elapsed().as_secs_f64()
        );
    }
    Ok(all_found)
}

/// The mistakes in the order of their numbers, those of `only` if it names any.
fn mistakes(root: &Path, only: &[String]) -> Result<Vec<Mistake>> {
    let mut mistakes = Vec::new();
    for entry in fs::read_dir(root.join("simulation/mistakes"))? {
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
    let is = |mistake: &Mistake, name: &str| {
        mistake.name == name || mistake.name.split_once('-').is_some_and(|parts| parts.0 == name || parts.1 == name)
    };
    for name in only {
        ensure!(mistakes.iter().any(|mistake| is(mistake, name)), "there is no mistake {name}: --list has their names");
    }
    mistakes.retain(|mistake| only.is_empty() || only.iter().any(|name| is(mistake, name)));
    Ok(mistakes)
}

/// The place where mistakes are put back: a copy of the tree, and what is built of it.
struct Bench {
    /// The commit that the tree is, changes that aren't committed included; new files must be known to git.
    commit: String,
    tree: PathBuf,
    target: PathBuf,
    /// The programs that are kept.
    kept: PathBuf,
}

impl Bench {
    fn new(root: &Path) -> Result<Self> {
        let kept = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let kept = std::path::absolute(kept)?.join("mistakes");
        let (tree, target) = (kept.join("tree"), kept.join("target"));
        fs::create_dir_all(&kept)?;
        if !tree.join(".git").exists() {
            let to = tree.to_str().context("a path that is no text")?;
            git(root, &["clone", "--quiet", "--shared", "--no-checkout", ".", to])?;
        }
        let changed = git(root, &["stash", "create"])?;
        let commit = if changed.is_empty() { git(root, &["rev-parse", "HEAD"])? } else { changed };
        Ok(Self { commit, tree, target, kept })
    }

    fn cargo(&self) -> Result<()> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--locked", "--profile", "simulation", "-p", "simulation", "--bin", "simulation"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            // Another build of one changed line takes half a minute so, and two minutes otherwise.
            .env("CARGO_PROFILE_SIMULATION_INCREMENTAL", "true")
            .env("CARGO_PROFILE_SIMULATION_CODEGEN_UNITS", "64")
            .output()
            .context("cargo")?;
        ensure!(output.status.success(), "it doesn't build: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Builds the simulation with a mistake, or with none. What git leaves as it is isn't built again.
    fn build(&self, mistake: Option<&Mistake>) -> Result<PathBuf> {
        git(&self.tree, &["checkout", "--quiet", "--force", "--detach", &self.commit])?;
        if let Some(mistake) = mistake {
            let patch = mistake.patch.to_str().context("a path that is no text")?;
            git(&self.tree, &["apply", patch])?;
        }
        if self.cargo().is_err() {
            // The compiler trips now and then over what it has kept of the last mistake.
            fs::remove_dir_all(self.target.join("simulation/incremental")).or_else(missing)?;
            self.cargo()?;
        }
        let built = self.target.join("simulation/simulation");
        let kept = self.kept.join(if mistake.is_some() { "with" } else { "without" });
        fs::copy(&built, &kept).with_context(|| built.display().to_string())?;
        Ok(kept)
    }
}

fn missing(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn git(directory: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").args(arguments).current_dir(directory).output().context("git")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {error}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The first seed that breaks a rule with the mistake and none without it.
fn search(arguments: &Arguments, program: &Path, plain: &Path) -> Result<Option<Found>> {
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

/// The longest that a world may take.
const PATIENCE: Duration = Duration::from_secs(240);

/// Runs worlds until one breaks a rule.
fn worlds(arguments: &Arguments, program: &Path, seed: u64, seeds: u64) -> Result<Option<Found>> {
    let mut command = Command::new(program);
    command.args(["--until-found", "--no-shrinking", "--patience", &PATIENCE.as_secs().to_string()]);
    command.args(["--seed", &seed.to_string(), "--seeds", &seeds.to_string()]);
    if arguments.pools {
        command.arg("--pools");
    }
    if let Some(habits) = arguments.controllers {
        command.args(["--controllers", &habits.to_string()]);
    }
    if let Some(jobs) = arguments.jobs {
        command.args(["--jobs", &jobs.to_string()]);
    }
    let output = command.stderr(Stdio::inherit()).output().context("the simulation")?;
    let text = String::from_utf8(output.stdout)?;
    match output.status.code() {
        Some(0) => Ok(None),
        Some(1) => Ok(Some(lowest(&text).with_context(|| format!("no seed in {text}"))?)),
        _ => anyhow::bail!("the simulation ended with {}: {text}", output.status),
    }
}

/// The lowest seed that is printed, with the first rule that it broke.
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
