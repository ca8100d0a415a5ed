//! Commands of a server that may not write: the same decisions without calls.

use rstest::rstest;

use super::fake::{World, group, nodes};
use crate::{ScaleError, ScaleOptions};

fn world(replicas: i32, machines: &[&str]) -> World {
    World::with_options(replicas, machines, ScaleOptions { read_only: true, ..ScaleOptions::default() })
}

fn reported(result: Result<(), ScaleError>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.code(), "read_only", "{error}");
    error.to_string()
}

#[tokio::test]
async fn read_only_mode_reports_a_size_change_without_writing_it() {
    let world = world(3, &["a", "b", "c"]);
    let increase = reported(world.scale.increase(group(), 2).await);
    assert!(increase.contains("would be scaled from 3 to 5; nothing was changed"), "{increase}");
    let delete = reported(world.scale.delete(group(), nodes(&["b"])).await);
    assert!(delete.contains("would be scaled from 3 to 2, for Machines b; nothing was changed"), "{delete}");
    assert_eq!(world.api.calls(), Vec::<String>::new());
    assert_eq!(world.target_size(), 3);
}

#[rstest]
#[case::replicas_without_a_machine(4, -2)]
#[case::all_have_a_node(2, -1)]
#[tokio::test]
async fn a_smaller_target_size_is_refused_since_a_success_would_freeze_the_caller(
    #[case] replicas: i32,
    #[case] delta: i32,
) {
    let world = world(replicas, &["a", "b"]);
    let decrease = reported(world.scale.decrease(group(), delta).await);
    assert!(decrease.contains("--read-only"), "{decrease}");
    assert_eq!(world.api.calls(), Vec::<String>::new());
    assert_eq!(world.target_size(), replicas);
}

#[tokio::test]
async fn a_change_is_refused_in_the_same_words_with_and_without_read_only_mode() {
    for options in [ScaleOptions::default(), ScaleOptions { read_only: true, ..ScaleOptions::default() }] {
        let world = World::with_options(1, &["a"], options);
        let beyond = world.scale.increase(group(), 10).await.unwrap_err();
        assert_eq!(beyond.code(), "failed_precondition");
        assert!(beyond.to_string().contains("which is above the maximum of 10"), "{beyond}");
        let below = world.scale.delete(group(), nodes(&["a"])).await.unwrap_err();
        assert!(below.to_string().contains("which is below the minimum of 1"), "{below}");
        let wrong = world.scale.decrease(group(), 1).await.unwrap_err();
        assert_eq!(wrong.code(), "invalid_argument");
        let unknown = world.scale.delete(group(), nodes(&["nobody"])).await.unwrap_err();
        assert_eq!(unknown.code(), "not_found");
    }
}
