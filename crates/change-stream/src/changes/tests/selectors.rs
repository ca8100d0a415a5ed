//! Field selectors, in the syntax of kubectl.

use serde_json::json;

use crate::changes::FieldSelector;

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
fn an_invalid_field_selector_is_refused(#[case] selector: &str) {
    assert!(selector.parse::<FieldSelector>().is_err());
}
