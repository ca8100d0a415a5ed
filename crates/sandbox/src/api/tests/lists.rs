//! Lists, pages and changes.

use super::*;

#[test]
fn changes_come_as_the_selection_sees_them() {
    let api = api();
    let since = api.revision();
    let selection = Selection::default().with_labels("app=web").unwrap();
    let label = |value: Value| {
        let patch = json!({"metadata": {"labels": {"app": value}}});
        api.patch(&machines(), "default", "a", PatchKind::Merge, Subresource::Main, patch).unwrap();
    };
    api.create(&machines(), machine("a")).unwrap();
    label(json!("web"));
    label(json!("db"));
    let changes = api.changes(&machines(), &selection, since).unwrap();
    let kinds: Vec<ChangeKind> = changes.iter().map(|change| change.kind).collect();
    assert_eq!(kinds, [ChangeKind::Added, ChangeKind::Deleted]);
    assert_eq!(changes[1].object["metadata"]["labels"]["app"], "web");
    assert_eq!(changes[1].object["metadata"]["resourceVersion"], changes[1].revision.to_string());
}

#[test]
fn changes_beyond_the_history_have_expired() {
    let api = Api::with_settings(Clock::driven(Timestamp::UNIX_EPOCH), Settings { history: 2 });
    api.define(KindSpec::new("cluster.x-k8s.io", "v1beta2", "Machine"));
    let since = api.revision();
    for name in ["a", "b", "c"] {
        api.create(&machines(), machine(name)).unwrap();
    }
    let changes = |revision| api.changes(&machines(), &Selection::default(), revision);
    assert_eq!(changes(since).unwrap_err().code, 410);
    assert_eq!(changes(since + 1).unwrap().len(), 2);
}

#[test]
fn the_last_changes_of_a_history_are_kept() {
    let api = api();
    let since = api.revision();
    for name in ["a", "b", "c"] {
        api.create(&machines(), machine(name)).unwrap();
    }
    let changes = |revision| api.changes(&machines(), &Selection::default(), revision);
    api.keep_history(3);
    assert_eq!(changes(since).unwrap().len(), 3);
    api.keep_history(1);
    assert_eq!(changes(since + 1).unwrap_err().code, 410);
    assert_eq!(changes(since + 2).unwrap().len(), 1);
}
