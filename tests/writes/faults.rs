//! Tests each API call of each command with each fault. Whatever the answer, either all of a command happens or nothing
//! of it; an answer that rules out a retry means that nothing happened, and a repeated delete deletes the named Nodes
//! once.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt as _, stream};
use proto::ExternalGrpcNode;
use sandbox::{
    Times,
    faults::{Effect, Fault, FaultHandle},
};
use testkit::{Wait, until};
use tokio::task::LocalSet;
use tonic::{Code, Status};

use crate::world::{Start, State, World};

/// The deadline of a caller that shall get no answer.
const IMPATIENT: Duration = Duration::from_secs(4);
/// Longer than a caller waits.
const DELAY: Duration = Duration::from_secs(5);
const PATIENT: Duration = Duration::from_secs(30);

/// The fault of a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wrong {
    Conflict,
    Invalid,
    TooManyRequests,
    InternalError,
    CutBefore,
    CutAfter,
    Delay,
    Unauthorized,
    Forbidden,
    Webhook,
}

const ALL: [Wrong; 10] = [
    Wrong::Conflict,
    Wrong::Invalid,
    Wrong::TooManyRequests,
    Wrong::InternalError,
    Wrong::CutBefore,
    Wrong::CutAfter,
    Wrong::Delay,
    Wrong::Unauthorized,
    Wrong::Forbidden,
    Wrong::Webhook,
];

impl Wrong {
    fn fault(self) -> Fault {
        match self {
            Self::Conflict => Fault::refuse(409, "Conflict", "the object has been modified"),
            Self::Invalid => Fault::refuse(422, "Invalid", "the server rejected our request"),
            Self::TooManyRequests => {
                Fault::refuse(429, "TooManyRequests", "too many requests").with_header("retry-after", "1")
            }
            Self::InternalError => Fault::refuse(500, "InternalError", "etcdserver: request timed out"),
            Self::CutBefore => Fault::new(Effect::CutBefore),
            Self::CutAfter => Fault::new(Effect::CutAfter),
            Self::Delay => Fault::new(Effect::Delay(DELAY)),
            Self::Unauthorized => Fault::refuse(401, "Unauthorized", "Unauthorized"),
            Self::Forbidden => Fault::refuse(403, "Forbidden", "machines is forbidden: no right to patch"),
            Self::Webhook => {
                Fault::refuse(403, "Forbidden", "admission webhook \"guard.example.com\" denied the request: frozen")
            }
        }
    }

    /// Returns true if the fault may be gone at the next attempt.
    fn may_pass(self) -> bool {
        !matches!(self, Self::Invalid | Self::Forbidden | Self::Webhook)
    }
}

/// An API call of a command or of its completion.
#[derive(Clone, Copy, Debug)]
struct Call {
    verb: &'static str,
    path: &'static str,
    /// The number among these calls.
    number: usize,
}

const LOG: Call = Call { verb: "patch", path: "/machinedeployments/workers(\\?|$)", number: 0 };
const SIZE: Call = Call { number: 1, ..LOG };
const FORGET: Call = Call { number: 2, ..LOG };
const MARK: Call = Call { verb: "patch", path: "/machines/", number: 0 };
const READ_OF_WHAT_IS_GONE: Call = Call { verb: "get", path: "/machines/", number: 0 };
const DIRECT_DELETE: Call = Call { verb: "delete", path: "/machines/", number: 0 };
/// The annotation that names the Machine about to be replaced.
const REPLACED: Call = LOG;
const SCALE: Call = Call { verb: "patch", path: "/machinedeployments/workers/scale", number: 0 };

/// The number of times that the fault strikes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Often {
    Once,
    /// Until the caller has its answer.
    UntilAnswered,
}

/// One row of a table.
#[derive(Clone, Copy, Debug)]
struct Row {
    call: Call,
    wrong: Wrong,
    often: Often,
}

impl Row {
    fn fault(self) -> Fault {
        let fault = self.wrong.fault().on_verb(self.call.verb).on_path(self.call.path).unwrap().after(self.call.number);
        match self.often {
            Often::Once => fault.times(1),
            Often::UntilAnswered => fault,
        }
    }

    /// Returns the caller's deadline: on a busy machine retries take long.
    fn deadline(self) -> Duration {
        if self.must_succeed() || self.must_be_refused() { PATIENT } else { IMPATIENT }
    }

    /// Returns true if the command must succeed despite the fault.
    fn must_succeed(self) -> bool {
        self.often == Often::Once && self.wrong.may_pass() && self.wrong != Wrong::Delay
    }

    /// Returns true if the command can't succeed, and nothing of it may be left. A 422 may also be a failed test
    /// operation, which is worth more attempts than the caller has time for. The log entry of a refused size write is
    /// removed by another write, which is refused as well and carried out later.
    fn must_be_refused(self) -> bool {
        let is_refused = matches!(self.wrong, Wrong::Forbidden | Wrong::Webhook);
        self.often == Often::UntilAnswered && is_refused && self.call.number == LOG.number
    }
}

/// Returns all faults of a call of a command.
fn rows(call: Call) -> impl Iterator<Item = Row> {
    let often = [Often::Once, Often::UntilAnswered];
    ALL.into_iter().flat_map(move |wrong| often.map(|often| Row { call, wrong, often }))
}

/// Runs the rows of a table concurrently, and fails with all failures.
async fn run<F: Future<Output = ()> + 'static>(rows: impl Iterator<Item = Row>, run: impl Fn(Row) -> F) {
    let local = LocalSet::new();
    let failed = local.run_until(async {
        let ran = stream::iter(rows.map(|row| {
            let run = run(row);
            async move { (row, tokio::task::spawn_local(run).await) }
        }));
        let failed = ran.buffer_unordered(9).filter_map(|(row, ended)| async move { ended.is_err().then_some(row) });
        failed.collect::<Vec<_>>().await
    });
    let failed = failed.await;
    assert!(failed.is_empty(), "{} rows failed, see above: {failed:#?}", failed.len());
}

/// Waits until a fault meets its call, which on a busy machine may be after the caller has left.
async fn is_met(fault: &FaultHandle) -> bool {
    tokio::time::timeout(PATIENT, fault.wait_for_hits(1)).await.is_ok()
}

/// The outcome that an answer reports.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Outcome {
    Done,
    /// Nothing was done, and a retry is useless until another change.
    Refused,
    /// The outcome is unknown: retry.
    ComeAgain,
}

fn meaning(row: Row, answer: &Result<(), Status>) -> Outcome {
    match answer.as_ref().map_err(Status::code) {
        Ok(()) => Outcome::Done,
        Err(Code::FailedPrecondition | Code::PermissionDenied | Code::InvalidArgument) => Outcome::Refused,
        Err(Code::Unavailable | Code::Aborted | Code::DeadlineExceeded | Code::Cancelled) => Outcome::ComeAgain,
        Err(code) => panic!("{row:?}: {code:?} says nothing of a repeat: {answer:?}"),
    }
}

/// The same, for rows with only one possible answer.
fn said(row: Row, answer: &Result<(), Status>) -> Outcome {
    let said = meaning(row, answer);
    if row.must_succeed() {
        assert_eq!(said, Outcome::Done, "{row:?}: it must succeed: {answer:?}");
    }
    if row.must_be_refused() {
        assert_eq!(said, Outcome::Refused, "{row:?}: it must be refused: {answer:?}");
    }
    said
}

/// Asserts that an answer is true: all of the command happened, or nothing.
fn assert_so(row: Row, said: Outcome, all: &State, nothing: &State, now: &State, world: &World) {
    let allowed = match said {
        Outcome::Done => [all, all],
        Outcome::Refused => [nothing, nothing],
        Outcome::ComeAgain => [all, nothing],
    };
    assert!(allowed.contains(&now), "{row:?}: {said:?}, and then it is {now:?}\n{}", world.describe());
}

async fn delete_under(row: Row) {
    let mut world = World::start(Start::default()).await;
    world.until_known(0).await;
    let before = world.now();
    let named = [1, 3].map(|index| world.nodes().remove(index)).to_vec();
    let going: Vec<_> = named.iter().map(|node| node.name.clone()).collect();
    world.sandbox.management().requests().clear();
    let fault = world.sandbox.management().faults().add(row.fault());

    let answer = world.delete(0, named.clone(), row.deadline()).await;

    assert!(is_met(&fault).await, "{row:?}: the fault met no call: {answer:?}\n{}", world.describe());
    if row.often == Often::UntilAnswered {
        fault.remove();
    }
    let said = said(row, &answer);
    if said == Outcome::ComeAgain {
        world.restart().await;
    }
    let now = world.rest().await;
    assert_so(row, said, &before.without(&going), &before, &now, &world);
    if now == before {
        world.until_known(0).await;
        let repeated = world.delete(0, named, PATIENT).await;
        assert!(repeated.is_ok(), "{row:?}: the repeat: {repeated:?}");
        assert_so(row, Outcome::Done, &before.without(&going), &before, &world.rest().await, &world);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_whose_log_write_goes_wrong_happens_once_or_not_at_all() {
    run(rows(LOG), delete_under).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_whose_mark_goes_wrong_happens_once_or_not_at_all() {
    run(rows(MARK), delete_under).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delete_whose_size_write_goes_wrong_happens_once_or_not_at_all() {
    run(rows(SIZE), delete_under).await;
}

/// The answer precedes the finisher: whatever fails then, it completes its work.
async fn finish_under(row: Row) {
    let world = World::start(Start::default()).await;
    world.until_known(0).await;
    let before = world.now();
    let named = [1, 3].map(|index| world.nodes().remove(index)).to_vec();
    let going: Vec<_> = named.iter().map(|node| node.name.clone()).collect();
    let fault = world.sandbox.management().faults().add(row.fault().times(2));
    world.delete(0, named, PATIENT).await.unwrap();
    tokio::time::timeout(PATIENT, fault.wait_for_hits(1)).await.unwrap_or_else(|_| panic!("{row:?} met no call"));
    let now = world.rest().await;
    assert_so(row, Outcome::Done, &before.without(&going), &before, &now, &world);
    world.stop().await;
}

fn once(call: Call) -> impl Iterator<Item = Row> {
    rows(call).filter(|row| row.often == Often::Once)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_finisher_recovers_from_a_fault_when_it_removes_an_entry_from_the_log() {
    run(once(FORGET), finish_under).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_finisher_recovers_from_a_fault_when_it_reads_a_machine_that_is_gone() {
    run(once(READ_OF_WHAT_IS_GONE), finish_under).await;
}

/// Another user deletes a Machine, which is still being deleted: the smaller size is spent on it, and the named one has
/// to be deleted directly.
async fn delete_directly_under(row: Row) {
    let world = World::start(Start::default()).await;
    world.until_known(0).await;
    let before = world.now();
    let mut nodes = world.nodes();
    let (other, named) = (nodes.remove(4), nodes.remove(1));
    let name = named.name.clone();
    world.hold_in_deletion(&other.name, true);
    world.delete_machine(&other.name);
    world.sandbox.simulation().settle().await;
    let fault = world.sandbox.management().faults().add(row.fault().times(2));
    world.delete(0, vec![named], PATIENT).await.unwrap();
    tokio::time::timeout(PATIENT, fault.wait_for_hits(1)).await.unwrap_or_else(|_| panic!("{row:?} met no call"));
    world.hold_in_deletion(&other.name, false);
    let now = world.rest().await;
    // The replica of the other one is filled again, and no third one has gone.
    let stayed: BTreeSet<_> = now.machines.intersection(&before.machines).cloned().collect();
    let expected = before.without(&[name, other.name]);
    assert_eq!((now.size, stayed), (before.size - 1, expected.machines), "{row:?}\n{}", world.describe());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_machine_goes_although_another_one_is_going_and_its_direct_delete_goes_wrong() {
    run(once(DIRECT_DELETE), delete_directly_under).await;
}

/// At the min size a Machine that never became a Node is replaced, at most once, and the size stays.
async fn replace_under(row: Row) {
    let start = Start { machines: 1, min: 1, behaviour: "never-join", ..Start::default() };
    let mut world = World::start(start).await;
    world.until_machines_known(0, 1).await;
    let before = world.now();
    let named = before.machines.first().unwrap().clone();
    let instance = format!("pending-machine-team-a_{named}");
    let node = ExternalGrpcNode { name: instance.clone(), provider_id: instance, ..ExternalGrpcNode::default() };
    let fault = world.sandbox.management().faults().add(row.fault());

    let answer = world.delete(0, vec![node.clone()], row.deadline()).await;

    assert!(is_met(&fault).await, "{row:?}: the fault met no call: {answer:?}\n{}", world.describe());
    if row.often == Often::UntilAnswered {
        fault.remove();
    }
    // Changes in between are left to the next loop, so a temporary fault need not have ended in success by now.
    let said = meaning(row, &answer);
    if said == Outcome::ComeAgain {
        world.restart().await;
    }
    let now = world.rest().await;
    assert_eq!(now.size, before.size, "{row:?}\n{}", world.describe());
    let has_gone = !now.machines.contains(&named);
    match said {
        Outcome::Done => assert!(has_gone, "{row:?}: it was answered OK\n{}", world.describe()),
        Outcome::Refused => assert!(!has_gone, "{row:?}: it was refused\n{}", world.describe()),
        Outcome::ComeAgain => {}
    }
    if !has_gone {
        world.until_machines_known(0, 1).await;
        let repeated = world.delete(0, vec![node], PATIENT).await;
        assert!(repeated.is_ok(), "{row:?}: the repeat: {repeated:?}\n{}", world.describe());
        let now = world.rest().await;
        assert!(now.size == before.size && !now.machines.contains(&named), "{row:?}: {now:?}\n{}", world.describe());
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_whose_annotation_goes_wrong_happens_once_or_not_at_all() {
    run(rows(REPLACED), replace_under).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacement_whose_deletion_goes_wrong_happens_once_or_not_at_all() {
    run(rows(DIRECT_DELETE), replace_under).await;
}

async fn increase_under(row: Row) {
    let mut world = World::start(Start::default()).await;
    let before = world.now().size;
    let fault = world.sandbox.management().faults().add(row.fault());
    let deadline = if row.wrong == Wrong::CutAfter { PATIENT } else { row.deadline() };
    let answer = world.increase(0, 2, deadline).await;
    assert!(is_met(&fault).await, "{row:?}: the fault met no call: {answer:?}\n{}", world.describe());
    if row.often == Often::UntilAnswered {
        fault.remove();
    }
    // A call that was carried out and whose answer is lost is detected by the field manager of the size.
    let said = said(row, &answer);
    if row.wrong == Wrong::CutAfter {
        assert_eq!(said, Outcome::Done, "{row:?}: it was done: {answer:?}");
    }
    if said == Outcome::ComeAgain {
        world.restart().await;
    }
    let now = world.rest().await.size;
    let allowed = match said {
        Outcome::Done => [before + 2, before + 2],
        Outcome::Refused => [before, before],
        Outcome::ComeAgain => [before, before + 2],
    };
    assert!(allowed.contains(&now), "{row:?}: {before}, then {answer:?}, then {now}\n{}", world.describe());
    let answers = async || (world.target_size(0).await == now).then_some(());
    Wait::new("the size is answered").showing(&|| format!("{row:?}")).value(answers).await;
    if answer.is_ok() {
        assert_eq!(now, before + 2, "{row:?}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_increase_whose_size_write_goes_wrong_happens_once_or_not_at_all() {
    run(rows(SCALE), increase_under).await;
}

/// A decrease takes Machines without a Node, by the same steps as a delete.
async fn decrease_under(row: Row) {
    let mut world = World::start(Start::default()).await;
    let joined = world.now().machines;
    let (before, delta) = (world.now().size + 3, 2);
    world.sandbox.simulation().set_times(Times { join: Duration::from_secs(3_600), ..Times::ZERO });
    world.set_size(before);
    world.rest().await;
    until("the new size", async || (world.target_size(0).await == before).then_some(())).await;
    // A replica without a Machine goes by a smaller size alone, without log and mark.
    world.until_machines_known(0, before).await;
    let fault = world.sandbox.management().faults().add(row.fault());
    let answer = world.decrease(0, -delta, row.deadline()).await;
    assert!(is_met(&fault).await, "{row:?}: the fault met no call: {answer:?}\n{}", world.describe());
    if row.often == Often::UntilAnswered {
        fault.remove();
    }
    let said = said(row, &answer);
    if said == Outcome::ComeAgain {
        world.restart().await;
    }
    let now = world.rest().await;
    let (all, nothing) = (before - i64::from(delta), before);
    let allowed = match said {
        Outcome::Done => [all, all],
        Outcome::Refused => [nothing, nothing],
        Outcome::ComeAgain => [all, nothing],
    };
    assert!(allowed.contains(&now.size), "{row:?}: {said:?}, then {now:?}\n{}", world.describe());
    assert!(joined.is_subset(&now.machines), "{row:?}: one with a Node has gone: {now:?}\n{}", world.describe());
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_smaller_target_size_whose_log_write_goes_wrong_happens_once_or_not_at_all() {
    run(rows(LOG), decrease_under).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_smaller_target_size_whose_mark_goes_wrong_happens_once_or_not_at_all() {
    run(rows(MARK), decrease_under).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_smaller_target_size_whose_size_write_goes_wrong_happens_once_or_not_at_all() {
    run(rows(SIZE), decrease_under).await;
}
