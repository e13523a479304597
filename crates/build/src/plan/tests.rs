use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

fn plan_with(text: &str, wanted: Wanted) -> Result<Plan, Problem> {
    Plan::new(Dockerfile::parse("Dockerfile", text.as_bytes())?, wanted)
}

fn plan(text: &str) -> Plan {
    plan_with(text, Wanted::new()).unwrap_or_else(|problem| panic!("{problem}"))
}

fn args(given: &[(&str, &str)]) -> Wanted {
    let args = given.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Wanted { args: args.collect(), ..Wanted::new() }
}

#[test]
fn only_what_the_target_needs_is_built() {
    let text = "FROM a AS one\nFROM b AS two\nFROM one AS three\nRUN --mount=from=two,target=/x y\n\
                FROM c AS unused\nCOPY --from=three / /\nFROM d\nCOPY --from=2 /x /\nCOPY --from=busybox /y /\n";
    let plan = plan(text);
    assert_eq!(plan.target(), 4);
    assert_eq!(plan.order(), [0, 1, 2, 4]);
    assert_eq!(plan.needs(2), [0, 1]);
    let wanted = Wanted { target: Some("TWO".to_owned()), ..Wanted::new() };
    assert_eq!(plan_with(text, wanted).unwrap().order(), [1]);
    let wanted = Wanted { target: Some("threee".to_owned()), ..Wanted::new() };
    let message = plan_with(text, wanted).unwrap_err().to_string();
    assert!(message.contains("did you mean three?"), "{message}");
}

#[test]
fn a_stage_may_take_from_a_later_one_but_not_from_itself() {
    let plan = plan("FROM a AS one\nCOPY --from=two /x /\nFROM b AS two\nFROM one\n");
    assert_eq!(plan.order(), [1, 0, 2]);
    for text in [
        "FROM a AS one\nCOPY --from=one /x /\n",
        "FROM a\nCOPY --from=0 /x /\n",
        "FROM a\nCOPY --from=7 /x /\n",
        "FROM a AS one\nCOPY --from=two /x /\nFROM one AS two\n",
        "FROM a AS one\nCOPY --from=two /x /\nFROM b AS two\nCOPY --from=one /x /\n",
        "FROM a\nCOPY --from=scratch /x /\n",
    ] {
        assert!(plan_with(text, Wanted::new()).is_err(), "{text}");
    }
}

#[test]
fn variables_before_the_first_stage_are_for_bases() {
    let text = "ARG V=bookworm T=debian:$V\nARG P\nFROM --platform=$BUILDPLATFORM $T AS x\nFROM x\nFROM ${P:-scratch}\n";
    let found = plan(text);
    assert_eq!(found.stages()[0].base, Base::Image("debian:bookworm".to_owned()));
    assert_eq!(
        (&found.stages()[1].base, &found.stages()[2].base),
        (&Base::Stage(0), &Base::Scratch)
    );
    let found = plan_with(text, args(&[("V", "sid"), ("P", "y"), ("Q", "z")])).unwrap();
    assert_eq!(found.stages()[0].base, Base::Image("debian:sid".to_owned()));
    assert_eq!(found.stages()[2].base, Base::Image("y".to_owned()));
    assert!(found.warnings.iter().any(|warning| warning.what.contains("no ARG Q")));
    for text in ["FROM $NOTHING\n", "FROM --platform=odd a\n", "ARG A=${B:?b}\nFROM a\n"] {
        assert!(plan_with(text, Wanted::new()).is_err(), "{text}");
    }
}

#[test]
fn a_second_stage_of_one_name_stands_on_the_first() {
    let plan = plan("FROM a AS x\nFROM x AS x\nFROM x\nCOPY --from=x /a /\n");
    assert_eq!(plan.stages()[1].base, Base::Stage(0));
    assert_eq!(plan.stages()[2].base, Base::Stage(1));
    assert_eq!(plan.warnings.len(), 1);
}

proptest! {
    /// Whatever stages take from each other, each is built after what it needs, or it is refused.
    #[test]
    fn the_order_holds(edges in proptest::collection::vec((0..8_usize, 0..8_usize), 0..12)) {
        let mut text = String::new();
        for stage in 0..8 {
            text.push_str("FROM a\n");
            for (_, to) in edges.iter().filter(|(from, _)| *from == stage) {
                writeln!(text, "COPY --from={to} /x /").unwrap();
            }
        }
        let Ok(plan) = plan_with(&text, Wanted::new()) else { return Ok(()) };
        let order = plan.order();
        for (place, stage) in order.iter().enumerate() {
            for needed in plan.needs(*stage) {
                prop_assert!(order[..place].contains(&needed));
            }
        }
    }
}
