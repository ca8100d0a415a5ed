//! Selectors, in the syntax of kubectl.

use serde_json::json;

use crate::changes::{FieldSelector, LabelSelector};

#[rstest::rstest]
#[case::equal("app=web", true)]
#[case::equal_twice("app==web", true)]
#[case::other("app=db", false)]
#[case::not("app!=db", true)]
#[case::not_of_an_absent_key("zone!=a", true)]
#[case::exists("app", true)]
#[case::absent("!app", false)]
#[case::within("app in (db, web)", true)]
#[case::without("app notin (db,web)", false)]
#[case::both("app=web,example.io/tier in (a),!zone", true)]
#[case::one_fails("app=web,zone", false)]
#[case::empty_value("note=", true)]
#[case::spaces(" app = web , !zone ", true)]
fn labels_match(#[case] selector: &str, #[case] matches: bool) {
    let object = json!({"metadata": {"labels": {"app": "web", "example.io/tier": "a", "note": ""}}});
    assert_eq!(selector.parse::<LabelSelector>().unwrap().matches(&object), matches);
}

#[rstest::rstest]
#[case::empty("")]
#[case::comma("app=web,")]
#[case::key("a b")]
#[case::odd_key("-a=b")]
#[case::prefix("A.b/c=d")]
#[case::value("app=a b")]
#[case::odd_value("app=-")]
#[case::open("app in (a")]
#[case::operator("app is (a)")]
#[case::greater("cpu > 3")]
fn what_is_no_label_selector_is_refused(#[case] selector: &str) {
    assert!(selector.parse::<LabelSelector>().is_err());
}

#[rstest::rstest]
#[case::equal("metadata.name=one", true)]
#[case::not("metadata.name!=one", false)]
#[case::number("spec.replicas==3", true)]
#[case::flag("spec.paused=true", true)]
#[case::absent("spec.nodeName=", true)]
#[case::absent_is_not("spec.nodeName!=x", true)]
#[case::both("metadata.name=one,spec.replicas!=3", false)]
fn fields_match(#[case] selector: &str, #[case] matches: bool) {
    let object = json!({"metadata": {"name": "one"}, "spec": {"replicas": 3, "paused": true}});
    assert_eq!(selector.parse::<FieldSelector>().unwrap().matches(&object), matches);
}

#[rstest::rstest]
#[case("")]
#[case("metadata.name")]
#[case("=one")]
#[case("a=b=c")]
#[case("metadata name=one")]
fn what_is_no_field_selector_is_refused(#[case] selector: &str) {
    assert!(selector.parse::<FieldSelector>().is_err());
}
