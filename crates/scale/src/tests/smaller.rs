//! Nodes that are smaller than what was remembered when the size was raised.

use std::{sync::Arc, time::Duration};

use rules::{
    capi::{InfrastructureRef, InfrastructureTemplate, ObjectKey},
    remembered::{Bootstrap, Key, Templates},
};
use serde_json::json;

use super::fake::{Setup, World, group, meta, show};
use index::{Change, Memory};

#[tokio::test(start_paused = true)]
async fn a_node_with_less_than_was_remembered_is_reported_once() {
    let reference = InfrastructureRef {
        group: "infrastructure.example.com".into(),
        kind: "CloudTemplate".into(),
        name: "t".into(),
    };
    let template = json!({"metadata": {"namespace": "team-a", "name": "t"}, "spec": {"size": "large"}});
    let template = InfrastructureTemplate::decode(meta(&template), &template).unwrap();
    let templates = Templates::new(&"team-a".into(), (&reference, template.spec), Bootstrap::None);
    let amounts = json!({"cpu": "4", "memory": "32Gi"});
    let entry = json!({
        "node": "old", "group": "MachineDeployment/team-a/workers", "seen": "2026-01-01T00:00:00Z",
        "capacity": amounts, "allocatable": amounts,
    });
    let (key, entry) = (Key::new(&templates, "amd64").unwrap().to_string(), entry.to_string());
    let config_map = ObjectKey::new("capi", "remembered-nodes");
    let memory = Arc::new(Memory::new(std::slice::from_ref(&config_map)));
    memory.set_content(&config_map, "1", [(key.as_str(), entry.as_str())]);

    let world = World::with(1, &["a"], &Setup { memory: Some(memory), ..Setup::default() });
    let named = json!({"apiGroup": &*reference.group, "kind": &*reference.kind, "name": &*reference.name});
    for (plural, name) in [("machinedeployments", "workers"), ("machinesets", "workers-1")] {
        let spec = json!({"spec": {"template": {"spec": {"infrastructureRef": named}}}});
        world.api.change(plural, name, spec);
    }
    world.watch();
    world.index.apply_and_take_notices(Change::Template((&reference).into(), Arc::new(template)));
    world.scale.increase(group(), 1).await.unwrap();
    world.machine("b", &json!({"nodeRef": {"name": "b"}}), &json!({}));
    let smaller = json!({"cpu": "4", "memory": "16Gi"});
    let conditions = json!([{"type": "Ready", "status": "True"}]);
    let node = json!({
        "kind": "Node", "metadata": {"name": "b"}, "spec": {"providerID": "cloud:///b"},
        "status": {"conditions": conditions, "capacity": smaller, "allocatable": smaller},
    });
    show(&world.index, &node);
    show(&world.index, &node);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let history = world.scale.history().of(&group());
    let reports: Vec<_> = history.iter().filter(|entry| entry.what == "SmallerThanRemembered").collect();
    let [report] = reports.as_slice() else { panic!("{history:?}") };
    assert_eq!(report.times, 1);
    assert!(
        report.text.contains("Node b has 16Gi of memory for pods, and 32Gi was remembered from Node old"),
        "{report:?}"
    );
}
