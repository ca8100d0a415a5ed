//! Sizes that one manager keeps putting back: increases are refused, so that Cluster Autoscaler tries other groups.

use std::time::Duration;

use serde_json::json;

use super::fake::{World, group};
use index::Hold;

/// Raises the size, and lets somebody put it back. Returns the answer to the increase.
async fn raised_and_put_back(world: &World) -> Result<(), crate::ScaleError> {
    let answer = world.scale.increase(group(), 1).await;
    world.api.change("machinedeployments", "workers", json!({"spec": {"replicas": 2}}));
    world.watch();
    tokio::time::sleep(Duration::from_millis(10)).await;
    answer
}

#[tokio::test(start_paused = true)]
async fn a_size_that_was_put_back_twice_is_not_raised_for_half_an_hour() {
    let world = World::new(2, &["a", "b"]);
    raised_and_put_back(&world).await.unwrap();
    assert_eq!(world.index.held(&group()), None, "a person may change a size once");
    raised_and_put_back(&world).await.unwrap();
    let Some(Hold::SizePutBack(manager)) = world.index.held(&group()) else { panic!("it isn't held") };
    let error = raised_and_put_back(&world).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert!(error.to_string().contains(&format!("field manager {manager} keeps putting the size back")), "{error}");
    assert!(error.to_string().contains("once both size annotations are set"), "else Cluster API writes 1: {error}");
    assert!(world.index.options(&group()).unwrap().scale_down_unneeded_time.is_some());
    tokio::time::advance(Duration::from_secs(30 * 60)).await;
    raised_and_put_back(&world).await.unwrap();
}
