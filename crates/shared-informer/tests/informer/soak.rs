//! A short soak of the informer: what `cargo bench --bench soak` does for minutes, without the limits that only an
//! optimized build on a quiet machine can meet.
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)]

#[path = "../../benches/soak/follower.rs"]
mod follower;
#[path = "../../benches/soak/latency.rs"]
mod latency;
#[path = "../../benches/soak/load.rs"]
mod load;

use std::{sync::Arc, time::Duration};

use sandbox::{api::Api, clock::Clock, http::ApiServer};

use self::{
    follower::Follower,
    load::{Load, fingerprint, go_wrong},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_thousands_of_changes_and_many_faults_every_handler_knows_what_the_api_holds() {
    let api = Api::new(Clock::real());
    let mut load = Load::new(api.clone(), 300, 7);
    let server = Arc::new(ApiServer::start(api.clone()).await.unwrap());
    let follower = Follower::start(&server.url());
    follower.synced().await;
    let wrong = tokio::spawn(go_wrong(Arc::clone(&server), 7));
    let changing = tokio::task::spawn_blocking(move || {
        load.run(1_000, Duration::from_secs(4));
        load.changes
    });
    let changes = tokio::select! {
        changes = changing => changes.unwrap(),
        () = follower.burden_by_turns(Duration::from_millis(500)) => unreachable!("it never ends"),
    };
    wrong.abort();
    server.faults().clear();
    let queued = follower.queued();
    let report = follower.finish(fingerprint(&api), Duration::from_secs(60)).await;
    assert!(report.mistakes.is_empty(), "{:#?}", report.mistakes);
    assert!(changes > 1_000, "{changes} changes");
    assert!(queued <= 300, "a queue holds no more than there are objects, and not {queued}");
    assert!(
        report.events.iter().all(|received| *received > 300),
        "every handler received changes: {:?}",
        report.events
    );
    println!("to a fast handler: {}; while one is slow: {}", report.calm, report.burdened);
    assert!(report.status.watch_errors > 0, "something went wrong: {:?}", report.status);
}
