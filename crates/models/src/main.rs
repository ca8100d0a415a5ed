//! The command that runs the search with given bounds, and prints the bounds, the result and the time taken.

use std::{iter, process::ExitCode, time::Instant};

use clap::Parser;
use models::{
    bounds::Bounds,
    compare::{KINDS, TABLE, count},
    explore::explore,
    model::DeleteModel,
    simple::{Simple, Unanswered},
    variant::Variant,
    world::Budget,
};

/// A search through all that the rule of deletion can meet.
#[allow(clippy::struct_excessive_bools, reason = "each widens or narrows the search by itself")]
#[derive(Debug, Parser)]
struct Args {
    /// Copies of the program, 1 or 2.
    #[arg(long, default_value_t = 2)]
    copies: usize,
    /// Machines with a Node.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Machines that have none yet.
    #[arg(long, default_value_t = 0)]
    pending: usize,
    /// Replicas that have no Machine yet.
    #[arg(long, default_value_t = 0)]
    missing: usize,
    /// The group's min.
    #[arg(long, default_value_t = 0)]
    min: i8,
    /// How many Machines one DeleteNodes names at most.
    #[arg(long, default_value_t = 1)]
    batch: i8,
    /// How many versions a controller's view keeps.
    #[arg(long, default_value_t = 2)]
    lag: usize,
    /// Let the MachineSet controller see a smaller size before the marks that were set ahead of it.
    #[arg(long)]
    misses_marks: bool,
    /// Put up with no other Machine going, even where someone else deletes a named one.
    #[arg(long)]
    strict: bool,
    /// Let the MachineSet controller delete one by one, while all else goes on.
    #[arg(long)]
    one_by_one: bool,
    /// Let the group be a MachineSet without a MachineDeployment.
    #[arg(long)]
    bare: bool,
    /// Let the group be a MachinePool.
    #[arg(long)]
    pool: bool,
    /// Let a MachinePool's provider take longer than Machines are left to it.
    #[arg(long)]
    slow_provider: bool,
    /// Choices of a MachinePool's provider against the marks.
    #[arg(long, default_value_t = 0)]
    strays: u8,
    /// Machines of an old MachineSet, in a rollout in which the group has opted to scale down; one of them surges.
    #[arg(long, default_value_t = 0)]
    old: usize,
    /// Copy annotations to the old MachineSet too, as Cluster API does from 1.12 on.
    #[arg(long)]
    copies_to_old: bool,
    /// Let a DeleteNodes join one that is under way.
    #[arg(long)]
    join: bool,
    /// DeleteNodes, repeats included.
    #[arg(long, default_value_t = 2)]
    deletes: u8,
    /// IncreaseSize by one.
    #[arg(long, default_value_t = 0)]
    increases: u8,
    /// DecreaseTargetSize by one.
    #[arg(long, default_value_t = 0)]
    decreases: u8,
    /// Crashes of a copy.
    #[arg(long, default_value_t = 0)]
    crashes: u8,
    /// Machines that someone else deletes.
    #[arg(long, default_value_t = 0)]
    foreign_deletes: u8,
    /// Sizes that someone else changes.
    #[arg(long, default_value_t = 0)]
    foreign_sizes: u8,
    /// Size writes that are refused for good.
    #[arg(long, default_value_t = 0)]
    refusals: u8,
    /// Machines without a Node that get one.
    #[arg(long, default_value_t = 0)]
    joins: u8,
    /// Let nodeRefs lag behind the Nodes, and the program's watches of the Nodes too.
    #[arg(long)]
    lagging_refs: bool,
    /// Reconciles of the MachineSet controller that end with an error.
    #[arg(long, default_value_t = 0)]
    errors: u8,
    /// Let every reconcile of the MachineSet controller end with an error, after all of its work.
    #[arg(long)]
    always_errs: bool,
    /// Let the MachineSet controller, after an error, act again before its cache shows what it has written.
    #[arg(long)]
    forgets_own_writes: bool,
    /// Marks that land late.
    #[arg(long, default_value_t = 0)]
    late_marks: u8,
    /// DeleteNodes that name placeholders, as many as `batch` at most.
    #[arg(long, default_value_t = 0)]
    placeholders: u8,
    /// DeleteNodes that name up to `batch` Machines and as many placeholders.
    #[arg(long, default_value_t = 0)]
    mixed: u8,
    /// Callers that leave while their command is carried out.
    #[arg(long, default_value_t = 0)]
    leaves: u8,
    /// Writes of the group whose answer is lost, done or not.
    #[arg(long, default_value_t = 0)]
    lost_answers: u8,
    /// Distinguish the copies in traces, which takes up to twice the states.
    #[arg(long)]
    apart: bool,
    /// Let no Machine be gone while a size is on its way to the MachineSet controller.
    #[arg(long)]
    prompt: bool,
    /// Count the end states of this rule and of the simple one (delete first, then lower), by what a user would notice.
    #[arg(long)]
    compare: bool,
    /// Do so for a list of bounds, and print a table.
    #[arg(long)]
    table: bool,
    /// Let the simple rule mark each Machine before it deletes it.
    #[arg(long)]
    marks: bool,
    /// What the simple rule makes of a Machine that is being deleted after a DELETE without an answer.
    #[arg(long, value_enum, default_value_t = Unanswered::Drop)]
    unanswered: Unanswered,
    /// Let the simple rule take a Machine that hangs in deletion for a placeholder only after the longest command.
    #[arg(long)]
    waits: bool,
    /// Let the simple rule take one other size write, by its generation, for a sign that its own wasn't done.
    #[arg(long)]
    counts_writes: bool,
    /// Print what each kind of end state takes at least, with a shortest trace.
    #[arg(long)]
    traces: bool,
    /// Stop after so many states.
    #[arg(long, default_value_t = 30_000_000)]
    most_states: usize,
}

impl Args {
    fn bounds(&self) -> Bounds {
        Bounds {
            copies: self.copies,
            nodes: self.nodes,
            pending: self.pending,
            missing: self.missing,
            min: self.min,
            batch: self.batch,
            lag: self.lag,
            sees_marks: !self.misses_marks,
            deletes_one_by_one: self.one_by_one,
            admits_known: !self.strict,
            is_bare: self.bare,
            is_pool: self.pool,
            is_slow: self.slow_provider,
            old: self.old,
            copies_to_old: self.copies_to_old,
            loses_nodes: self.placeholders + self.mixed > 0,
            always_errs: self.always_errs,
            forgets_own_writes: self.forgets_own_writes,
            splits_unmarks: self.late_marks > 0,
            lags_node_refs: self.lagging_refs,
            may_be_named: None,
            joins_batches: self.join,
            merges_copies: !self.apart,
            is_prompt: self.prompt,
            tallies: false,
            budget: Budget {
                deletes: self.deletes,
                increases: self.increases,
                decreases: self.decreases,
                crashes: self.crashes,
                foreign_deletes: self.foreign_deletes,
                foreign_sizes: self.foreign_sizes,
                refusals: self.refusals,
                joins: self.joins,
                errors: self.errors,
                late_marks: self.late_marks,
                placeholders: self.placeholders,
                lost_answers: self.lost_answers,
                strays: self.strays,
                mixed: self.mixed,
                leaves: self.leaves,
            },
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let bounds = args.bounds();
    if args.table {
        compare_all();
        return ExitCode::SUCCESS;
    }
    if args.compare {
        compare(&args, "");
        return ExitCode::SUCCESS;
    }
    println!("{bounds:?}");
    let started = Instant::now();
    let rule = Variant { ..Variant::default() };
    let found = explore(&DeleteModel { rule, bounds }, args.most_states);
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{} states, {} steps, {} at rest, {} cut, complete: {}, {seconds:.1} s",
        found.states, found.steps, found.at_rest, found.cut, found.is_complete
    );
    if let Some(broken) = found.broken {
        println!("it breaks:\n{broken}");
        return ExitCode::FAILURE;
    }
    if !found.is_complete {
        println!("nothing breaks so far, but the search isn't complete: allow more by --most-states");
        return ExitCode::from(2);
    }
    println!("it holds");
    ExitCode::SUCCESS
}

/// Prints the end states of both rules: of the one with a log, and of the simple one as it was designed, as it is
/// mended, and as it is mended where controllers are faster than Machines are deleted.
fn compare(args: &Args, name: &str) {
    let bounds = args.bounds();
    let Args { marks, unanswered, waits, counts_writes, .. } = *args;
    let simple = Simple { marks, unanswered, waits, counts_writes };
    let mended = Simple { waits: true, counts_writes: true, ..simple };
    let prompt = Bounds { is_prompt: true, ..bounds };
    let rules = [
        ("log", bounds, None),
        ("simple", bounds, Some(simple)),
        ("mended", bounds, Some(mended)),
        ("mended, prompt", prompt, Some(mended)),
    ];
    for (rule, bounds, simple) in rules {
        let counted = count(bounds, simple, args.most_states);
        println!("| {} | {rule} | {}", if rule == "log" { name } else { "" }, counted);
        if args.traces {
            println!("{}", counted.causes);
        }
    }
}

fn compare_all() {
    println!("| bounds | rule | states | ends | {} |", KINDS.join(" | "));
    println!("|{}", "---|".repeat(4 + KINDS.len()));
    for line in TABLE {
        compare(&Args::parse_from(iter::once("models").chain(line.split(' '))), line);
    }
}
