//! Lists, pages and changes.

use super::*;

fn names(page: &Page) -> Vec<&str> {
    page.objects.iter().map(|object| text(object.value(), "name")).collect()
}

fn page(api: &Api, token: Option<String>) -> Result<Page, Refusal> {
    api.page(&machines(), &PageQuery { limit: Some(2), token, ..PageQuery::all(Selection::default()) })
}

#[test]
fn pages_show_the_state_of_the_first_one() {
    let api = api();
    for name in ["a", "b", "c", "d", "e"] {
        api.create(&machines(), machine(name)).unwrap();
    }
    let first = page(&api, None).unwrap();
    assert_eq!((names(&first), first.remaining), (vec!["a", "b"], Some(3)));
    api.delete(&machines(), "default", "d", &DeleteOptions::default()).unwrap();
    api.create(&machines(), machine("bb")).unwrap();
    let labels = json!({"metadata": {"labels": {"x": "y"}}});
    api.patch(&machines(), "default", "c", PatchKind::Merge, Subresource::Main, labels).unwrap();
    let second = page(&api, first.token).unwrap();
    assert_eq!((names(&second), second.remaining), (vec!["c", "d"], Some(1)));
    assert_eq!(second.objects[0].value()["metadata"].get("labels"), None);
    let third = page(&api, second.token).unwrap();
    assert_eq!((names(&third), &third.token), (vec!["e"], &None));
    assert_eq!((third.revision, second.revision), (first.revision, first.revision));
}

#[test]
fn a_page_whose_state_is_forgotten_has_expired() {
    let api = api();
    for name in ["a", "b", "c"] {
        api.create(&machines(), machine(name)).unwrap();
    }
    let first = page(&api, None).unwrap();
    api.create(&machines(), machine("d")).unwrap();
    api.forget_history();
    let refusal = page(&api, first.token).unwrap_err();
    assert_eq!((refusal.code, refusal.reason), (410, "Expired"));
}

#[test]
fn a_list_shows_an_older_state_when_asked_for_exactly_that() {
    let api = api();
    api.create(&machines(), machine("a")).unwrap();
    let before = api.revision();
    api.create(&machines(), machine("b")).unwrap();
    let query = PageQuery { when: When::Exactly(before), ..PageQuery::all(Selection::default()) };
    assert_eq!(names(&api.page(&machines(), &query).unwrap()), ["a"]);
    let query = PageQuery { when: When::NotOlderThan(before), ..PageQuery::all(Selection::default()) };
    assert_eq!(names(&api.page(&machines(), &query).unwrap()), ["a", "b"]);
    let query = PageQuery { when: When::NotOlderThan(1_000), ..PageQuery::all(Selection::default()) };
    assert_eq!(api.page(&machines(), &query).unwrap_err().code, 504);
}

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
