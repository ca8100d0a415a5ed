//! Each write leads to the client that asked for it, also where another copy has made it: by the ticket, which the log
//! line of the acceptance has together with the client.

use super::{
    ABCD,
    fake::{Copy, Fault, World, group, instance, nodes},
    finishing::until_shown,
};
use serde_json::json;
use testkit::CapturedLog;

/// Lets a copy's watches show all objects, again and again, until a condition holds.
async fn until(world: &World, copy: &Copy, what: &str, is_so: impl Fn() -> bool) {
    until_shown(world, || copy.watch(), what, is_so).await;
}

/// Returns the only line that contains these parts.
fn line<'a>(said: &'a str, parts: &[&str]) -> &'a str {
    let lines: Vec<_> = said.lines().filter(|line| parts.iter().all(|part| line.contains(part))).collect();
    let [line] = lines[..] else { panic!("{parts:?}: {lines:?} in {said}") };
    line
}

/// Returns the ticket in a line.
fn ticket_of(line: &str) -> &str {
    let (_, rest) = line.split_once("ticket=\"").unwrap_or_else(|| panic!("no ticket: {line}"));
    rest.split_once('"').expect("its end").0
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_another_copy_finishes_logs_the_ticket_that_links_it_to_its_client() {
    let said = CapturedLog::default();
    let writer = said.clone();
    let log = tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _log = tracing::subscriber::set_default(log);
    let world = World::new(4, &ABCD);
    // The copy that accepts it gets no further.
    world.api.fault("PATCH machine b", Fault::Hold);
    let client = world.scale.requested_by(Some("cluster-autoscaler".into()));
    let call = tokio::spawn(async move { client.delete(group(), nodes(&["b"])).await });
    world.api.held().await;
    let accepted = said.take();
    let accepted =
        line(&accepted, &["deletions are written to the log", "machines=\"b\"", "client=\"cluster-autoscaler\""]);
    let ticket = format!("ticket=\"{}\"", ticket_of(accepted));
    assert!(world.api.object("machinedeployments", "workers").unwrap().to_string().contains(ticket_of(accepted)));

    let other = world.another_copy();
    until(&world, &other, "b is lowered", || world.api.log() == ["b lowered"]).await;
    let written = said.take();
    assert!(!line(&written, &["size written", "machines=\"b\"", &ticket]).contains("client="), "{written}");
    let reported = other.scale.history().of(&group());
    assert!(reported[0].text.ends_with(&format!("(deletions of ticket {})", ticket_of(accepted))), "{reported:?}");

    world.api.follow();
    until(&world, &other, "b is deleted by name", || world.api.calls().contains(&"DELETE machine b".to_owned())).await;
    let deleted = said.take();
    line(&deleted, &["Machine deleted by name", &format!("ticket={}", ticket_of(accepted))]);
    let reported = other.scale.history().of(&group());
    assert!(reported[0].text.ends_with(&format!("(deletions of ticket {})", ticket_of(accepted))), "{reported:?}");
    world.api.remove("b");
    until(&world, &other, "b has left the log", || world.api.log().is_empty()).await;
    line(&said.take(), &["deletions completed", "machines=\"b\"", &ticket]);
    call.abort();
}

#[tokio::test(start_paused = true)]
async fn a_smaller_size_has_its_ticket_with_the_client_too() {
    let said = CapturedLog::default();
    let writer = said.clone();
    let log = tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _log = tracing::subscriber::set_default(log);
    let world = World::new(2, &["a"]);
    world.machine("c", &json!({}), &json!({}));
    let client = world.scale.requested_by(Some("cluster-autoscaler".into()));
    client.decrease(group(), -1).await.unwrap();
    let said = said.take();
    let logged = line(&said, &["deletions are written to the log", "machines=\"c\"", "client=\"cluster-autoscaler\""]);
    let ticket = format!("ticket=\"{}\"", ticket_of(logged));
    line(&said, &["size written", "machines=\"c\"", "client=\"cluster-autoscaler\"", &ticket]);
}

#[tokio::test(start_paused = true)]
async fn each_log_line_of_a_write_names_its_client() {
    let said = CapturedLog::default();
    let writer = said.clone();
    let log = tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _log = tracing::subscriber::set_default(log);
    let world = World::new(2, &["a", "b"]);
    let client = world.scale.requested_by(Some("cluster-autoscaler".into()));
    client.increase(group(), 1).await.unwrap();
    client.decrease(group(), -1).await.unwrap();
    client.delete(group(), nodes(&["b"])).await.unwrap();
    client.delete(group(), nodes(&["z"])).await.unwrap_err();
    let at_min_size = World::new(1, &[]);
    let failed = json!({"phase": "Failed", "deprecated": {"v1beta1": {"failureReason": "CreateError"}}});
    at_min_size.machine("a", &failed, &json!({}));
    let client = at_min_size.scale.requested_by(Some("cluster-autoscaler".into()));
    client.delete(group(), instance("failed-machine-team-a_a")).await.unwrap();
    let said = said.take();
    for part in ["size written", "deletions are written to the log", "Machine is replaced", "command done", "refused"] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    let unnamed: Vec<_> = said.lines().filter(|line| !line.contains("client=\"cluster-autoscaler\"")).collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
}
