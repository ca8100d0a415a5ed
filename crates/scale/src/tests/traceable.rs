//! Each write leads to the client that asked for it.

use super::fake::{World, group, instance, nodes};
use serde_json::json;
use testkit::CapturedLog;

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
    for part in ["Machine is replaced", "command done", "refused"] {
        assert!(said.contains(part), "no {part}: {said}");
    }
    let sizes: Vec<_> = said.lines().filter(|line| line.contains("size written")).collect();
    let [raised, lowered, with_a_machine] = sizes.as_slice() else { panic!("{sizes:#?}") };
    assert!(!raised.contains("machines") && !lowered.contains("machines"), "no Machine goes with these: {sizes:#?}");
    assert!(with_a_machine.contains("machines=\"b\""), "{with_a_machine}");
    let unnamed: Vec<_> = said.lines().filter(|line| !line.contains("client=\"cluster-autoscaler\"")).collect();
    assert!(unnamed.is_empty(), "{unnamed:?}");
    let reported = world.scale.history().of(&group());
    assert!(reported.iter().any(|entry| entry.text.ends_with("(asked for by cluster-autoscaler)")), "{reported:?}");
}
