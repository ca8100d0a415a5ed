//! Tests of the lines that are printed when objects change.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn adds_updates_and_deletes_are_a_line_of_json_each() {
    let fake = Fake::usual().await;
    fake.put("machines", "team-a/there", json!({}));
    let scene = Scene::start(&fake, &["machines"]).await;
    fake.put("machines", "team-a/new", json!({"spec": {"a": 1}}));
    scene.printed.lines(1).await;
    fake.put("machines", "team-a/new", json!({"spec": {"a": 2}}));
    scene.printed.lines(2).await;
    fake.delete("machines", "team-a/new");
    let lines = scene.printed.json(3).await;
    assert_eq!(shorts(&lines), ["ADDED Machine new", "MODIFIED Machine new", "DELETED Machine new"]);
    assert_eq!(lines[1]["patch"], json!([{"op": "replace", "path": "/spec/a", "value": 2}]));
    for line in &lines {
        assert_eq!(line["schemaVersion"], 1);
        assert_eq!((&line["cluster"], &line["namespace"]), (&json!("management"), &json!("team-a")));
        assert_eq!((&line["apiVersion"], &line["resource"]), (&json!("cluster.x-k8s.io/v1beta2"), &json!("machines")));
    }
    scene.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn watch_shows_the_objects_present_at_the_start_with_the_flag_show_initial() {
    let fake = Fake::usual().await;
    fake.put("machines", "team-a/there", json!({}));
    let scene = Scene::start(&fake, &["machines", "--show-initial"]).await;
    let lines = scene.printed.json(1).await;
    assert_eq!((shorts(&lines), &lines[0]["initial"]), (vec!["ADDED Machine there".to_owned()], &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_and_what_is_ignored_give_no_line() {
    let fake = Fake::usual().await;
    let node = |heartbeat: u32, count: u32| {
        let annotations = json!({"example.com/count": count.to_string(), "kept": "x"});
        let conditions = json!([{"type": "Ready", "lastHeartbeatTime": heartbeat}]);
        json!({"metadata": {"annotations": annotations}, "status": {"conditions": conditions}})
    };
    fake.put("nodes", "one", node(1, 1));
    let scene = Scene::start(&fake, &["no", "--ignore", "/metadata/annotations/example.com~1count"]).await;
    fake.put("nodes", "one", node(2, 1));
    fake.put("nodes", "one", node(2, 2));
    fake.put("nodes", "two", json!({}));
    assert_eq!(shorts(&scene.printed.json(1).await), ["ADDED Node two"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn people_read_it_by_path_and_coloured_when_they_ask() {
    let fake = Fake::usual().await;
    fake.put("machines", "team-a/a", json!({"status": {"phase": "Pending"}}));
    for (color, coloured) in [("never", false), ("always", true)] {
        let scene = Scene::start(&fake, &["machines", "-o", "text", "--color", color]).await;
        let managers = json!([{"manager": "capi", "operation": "Update", "subresource": "status", "time": color}]);
        fake.put("machines", "team-a/a", json!({"metadata": {"managedFields": managers}, "status": {"phase": color}}));
        let lines = scene.printed.lines(2).await;
        assert_eq!(lines.join("").contains('\u{1b}'), coloured, "{lines:?}");
        if !coloured {
            assert!(lines[0].contains(" ~ Machine team-a/a rv="), "{lines:?}");
            assert!(lines[0].ends_with(" by capi (status)"), "{lines:?}");
            assert_eq!(lines[1], "    status.phase: \"Pending\" → \"never\"");
        }
        scene.end().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn by_default_it_is_cluster_apis_kinds_that_are_watched() {
    let fake = Fake::usual().await;
    let scene = Scene::start(&fake, &[]).await;
    fake.put("clusters", "team-a/prod", json!({}));
    scene.printed.lines(1).await;
    fake.put("machines", "team-a/one", json!({}));
    fake.put("machines", "team-b/elsewhere", json!({}));
    fake.put("secrets", "team-a/other", json!({}));
    fake.put("machines", "team-a/two", json!({}));
    let lines = scene.printed.json(3).await;
    assert_eq!(shorts(&lines), ["ADDED Cluster prod", "ADDED Machine one", "ADDED Machine two"]);
}

#[rstest::rstest]
#[case::by_default(&[])]
#[case::by_name(&["clusters,Machine.cluster.x-k8s.io"])]
#[case::by_default_and_by_a_selector(&["-l", "!gone"])]
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_narrows_cluster_apis_kinds_to_what_belongs_to_it(#[case] flags: &[&str]) {
    let fake = Fake::usual().await;
    let scene = Scene::start(&fake, &[&["--cluster", "team-b/prod"], flags].concat()).await;
    let of = |cluster: &str| json!({"metadata": {"labels": {"cluster.x-k8s.io/cluster-name": cluster}}});
    fake.put("clusters", "team-b/other", json!({}));
    fake.put("clusters", "team-b/prod", json!({}));
    scene.printed.lines(1).await;
    fake.put("machines", "team-b/other", of("other"));
    fake.put("machines", "team-a/one", of("prod"));
    fake.put("machines", "team-b/two", of("prod"));
    let lines = scene.printed.json(2).await;
    assert_eq!(shorts(&lines), ["ADDED Cluster prod", "ADDED Machine two"]);
}

#[rstest::rstest]
#[case::context(&[], &["a"])]
#[case::two(&["-n", "team-a,team-b"], &["a", "b"])]
#[case::repeated(&["-n", "team-b", "-n", "default"], &["b", "d"])]
#[case::all(&["-A"], &["a", "b", "d"])]
#[case::labels(&["-A", "-l", "app in (x),!gone"], &["b"])]
#[case::fields(&["-A", "--field-selector", "metadata.name!=a"], &["b", "d"])]
#[tokio::test(flavor = "multi_thread")]
async fn namespaces_and_selectors_narrow_what_is_watched(#[case] flags: &[&str], #[case] expected: &[&str]) {
    let fake = Fake::usual().await;
    fake.put("machines", "team-a/a", json!({}));
    fake.put("machines", "team-b/b", json!({"metadata": {"labels": {"app": "x"}}}));
    fake.put("machines", "default/d", json!({}));
    let scene = Scene::start(&fake, &[&["machines", "--show-initial"], flags].concat()).await;
    let mut lines = scene.printed.json(expected.len()).await;
    lines.sort_by_key(|line| line["name"].as_str().unwrap().to_owned());
    assert_eq!(lines.iter().map(|line| line["name"].as_str().unwrap()).collect::<Vec<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_kind_that_is_installed_later_is_picked_up_with_all_that_is_new_of_it() {
    let fake = Fake::usual().await;
    let scene = Scene::start(&fake, &[]).await;
    fake.install(definition(CAPI, "MachinePool", &[], &["v1beta2"]));
    fake.put("machinepools", "team-a/first", json!({}));
    let lines = scene.printed.json(1).await;
    assert_eq!((shorts(&lines), &lines[0]["initial"]), (vec!["ADDED MachinePool first".to_owned()], &Value::Null));
    fake.put("machinepools", "team-a/second", json!({}));
    assert_eq!(shorts(&scene.printed.json(2).await)[1], "ADDED MachinePool second");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_is_removed_and_installed_again_is_followed_on() {
    let fake = Fake::usual().await;
    fake.put("machines", "team-a/a", json!({}));
    let scene = Scene::start(&fake, &["machines"]).await;
    fake.delete("machines", "team-a/a");
    scene.printed.lines(1).await;
    fake.uninstall("machines");
    fake.install(definition(CAPI, "Machine", &[], &["v1beta2"]));
    fake.put("machines", "team-a/b", json!({}));
    assert_eq!(shorts(&scene.printed.json(2).await), ["DELETED Machine a", "ADDED Machine b"]);
}
