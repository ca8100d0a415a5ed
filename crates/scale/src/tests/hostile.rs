//! Callers that attack: commands that outlive their calls, commands without end, texts of megabytes, and refusals by
//! the thousand.

use futures::FutureExt as _;

use super::{
    Running,
    fake::{Fault, LONG, World, group, instance, nodes},
};
use crate::{NamedNode, ScaleError, queue::MOST_WAITING};
use testkit::CapturedLog;

/// Builds a world in which a command waits for the answer to its write.
async fn held() -> (World, Running) {
    let world = World::new(2, &["a", "b"]);
    let command =
        super::held(&world, "PATCH scale", Fault::Hold, |scale| async move { scale.increase(group(), 1).await }).await;
    (world, command)
}

fn waiting(world: &World) -> usize {
    world.scale.shared.lanes.waiting(&group())
}

fn long(text: &str) -> String {
    text.repeat((1 << 20) / text.len())
}

/// Sends a delete, and resets the call at once.
fn delete_and_reset(world: &World, nodes: Vec<NamedNode>) {
    assert_eq!(world.scale.delete(group(), nodes).now_or_never(), None);
}

#[tokio::test]
async fn commands_whose_calls_were_reset_do_not_pile_up_behind_a_write() {
    let (world, command) = held().await;
    for _ in 0..1_000 {
        delete_and_reset(&world, nodes(&["a"]));
    }
    assert!(waiting(&world) <= 16, "{} wait", waiting(&world));
    // Of those that take much memory only the last one stays.
    let annotated = NamedNode { annotations: [("a".to_owned(), long("a"))].into(), ..nodes(&["a"])[0].clone() };
    for large in [vec![annotated], instance(&long("a")), nodes(&["a"; 101])] {
        for _ in 0..10 {
            delete_and_reset(&world, large.clone());
        }
        assert_eq!(waiting(&world), 1);
    }
    world.api.release();
    command.await.unwrap().unwrap();
    world.scale.drain(LONG).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.deleting()), (3, vec![]));
}

#[tokio::test]
async fn of_one_group_a_bounded_number_of_commands_wait_and_others_have_their_turn() {
    let (world, command) = held().await;
    let mut calls: Vec<_> = (0..MOST_WAITING).map(|_| Box::pin(world.scale.increase(group(), 0))).collect();
    for call in &mut calls {
        assert_eq!(call.now_or_never(), None);
    }
    let refused = world.scale.increase(group(), 1).now_or_never().unwrap().unwrap_err();
    let ScaleError::Unavailable(text) = &refused else { panic!("{refused}") };
    assert!(text.contains("1000 commands of the node group wait") && text.contains("try again"), "{text}");
    assert_eq!(waiting(&world), MOST_WAITING);
    // A place becomes free with a caller that leaves.
    calls.pop();
    calls.push(Box::pin(world.scale.increase(group(), 0)));
    assert_eq!(calls[MOST_WAITING - 1].as_mut().now_or_never(), None);
    assert_eq!(waiting(&world), MOST_WAITING);
    world.api.release();
    command.await.unwrap().unwrap();
    for call in calls {
        assert!(matches!(call.await, Err(ScaleError::InvalidArgument(_))));
    }
    assert_eq!(world.api.replicas(), 3);
}

#[tokio::test(start_paused = true)]
async fn refusals_are_a_line_a_minute_and_each_write_is_logged() {
    let (said, _log) = CapturedLog::begin();
    let world = World::new(2, &["a", "b"]);
    let unknown = |number: u32| rules::GroupId::parse(&format!("MachineDeployment/team-a/g{number}")).unwrap();
    for number in 0..50 {
        world.scale.increase(group(), 0).await.unwrap_err();
        world.scale.increase(unknown(number), 1).await.unwrap_err();
        world.scale.delete(group(), instance(&number.to_string())).await.unwrap_err();
    }
    let lines = |said: &str, part: &str| said.lines().filter(|line| line.contains(part)).count();
    let first = said.take();
    assert_eq!(lines(&first, "command refused or failed"), 3, "{first}");
    for _ in 0..3 {
        world.scale.increase(group(), 1).await.unwrap();
    }
    let written = said.take();
    assert_eq!((lines(&written, "size written"), lines(&written, "command done")), (3, 3), "{written}");
    tokio::time::advance(std::time::Duration::from_secs(60)).await;
    world.scale.sum_up_refusals();
    let sums = said.take();
    assert_eq!((lines(&sums, "more=49"), sums.lines().count()), (3, 3), "{sums}");
    world.scale.increase(group(), 0).await.unwrap_err();
    assert_eq!(lines(&said.take(), "command refused or failed"), 1);
}

#[tokio::test]
async fn no_text_of_a_request_is_kept_or_logged_whole() {
    let (said, _log) = CapturedLog::begin();
    let world = World::new(2, &["a", "b"]);
    for text in [long("a"), long("ä"), long("\u{7}"), format!("replica-MachineDeployment-team-a_workers-{}", long("0"))]
    {
        for named in [instance(&text), vec![NamedNode { name: text.clone(), ..NamedNode::default() }]] {
            let error = world.scale.delete(group(), named).await.unwrap_err().to_string();
            assert!(error.len() < 8 << 10, "{} bytes", error.len());
        }
        tokio::time::pause();
        tokio::time::advance(std::time::Duration::from_secs(60)).await;
        tokio::time::resume();
    }
    let entries = world.scale.history().of(&group());
    assert!(!entries.is_empty() && entries.iter().all(|entry| entry.text.len() < 8 << 10), "{}", entries.len());
    let said = said.take();
    assert!(said.contains("command refused or failed"), "{said}");
    assert_eq!(said.lines().map(str::len).filter(|length| *length > 8 << 10).max(), None);
}
