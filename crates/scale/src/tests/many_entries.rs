//! Logs of many Machines that exist, each of which costs calls: one look at the group marks or deletes a limited number
//! of them, and the others have their turn.

use serde_json::json;

use super::{
    fake::World,
    finishing::{is_deleting, until},
};

const LOGGED: usize = 300;

/// Returns a world whose group has a log of most of its Machines.
fn logged(phase: &str) -> World {
    let names: Vec<_> = (0..LOGGED + 10).map(|number| format!("m{number}")).collect();
    let world = World::new(310, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let uid = |name: &String| (name.clone(), json!(format!("uid-{name}")));
    let machines: serde_json::Map<_, _> = names.iter().take(LOGGED).map(uid).collect();
    world.api.set_log(&json!([{"ticket": "t", "phase": phase, "machines": machines}]).to_string());
    world.api.follow();
    world
}

#[tokio::test(start_paused = true)]
async fn one_look_marks_a_limited_number_of_machines() {
    let world = logged("wanted");
    let is_size = |call: &String| call == "PATCH group" || call == "PATCH scale";
    until(&world, "a part is lowered", |world| world.api.calls().iter().any(is_size)).await;
    let calls = world.api.calls();
    let marks = calls.iter().take_while(|call| !is_size(call)).filter(|call| call.starts_with("PATCH machine"));
    assert_eq!(marks.count(), 256);
    let is_lowered = |entry: &String| entry.ends_with(" lowered");
    until(&world, "the others have their turn", |world| world.api.log().iter().all(is_lowered)).await;
    assert_eq!((world.api.marked().len(), world.api.replicas()), (LOGGED, 10));
}

#[tokio::test(start_paused = true)]
async fn one_look_deletes_a_limited_number_of_machines() {
    let world = logged("lowered");
    let is_delete = |call: &String| call.starts_with("DELETE machine");
    until(&world, "a part is deleted", |world| world.api.calls().iter().any(is_delete)).await;
    let calls = world.api.calls();
    // The next look begins with reads.
    let of_one_look = calls.iter().skip_while(|call| !is_delete(call));
    let of_one_look = of_one_look.take_while(|call| !call.starts_with("GET machine"));
    assert_eq!(of_one_look.filter(|call| is_delete(call)).count(), 256);
    let has_gone = |world: &World| (0..LOGGED).all(|number| is_deleting(world, &format!("m{number}")));
    until(&world, "the others have their turn", has_gone).await;
    assert!(!is_deleting(&world, "m300"));
}
