//! Schemas of value types: every variant is seen, recursion ends, the text is read back.
#![allow(clippy::unwrap_used)] // a test that panics has failed
#![allow(dead_code)] // types that are only traced

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::num::{NonZeroI64, NonZeroU16};
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use tidegate_derive::StateKey;
use tidegate_state::schema::{Schema, SchemaError};

fn text<V: DeserializeOwned>() -> String {
    let schema = Schema::of_value::<V>();
    let text = schema.to_string();
    assert_eq!(Schema::parse(&text).unwrap(), schema, "{text}");
    assert_eq!(Schema::of_value::<V>(), schema, "it is the same again");
    text
}

#[test]
fn plain_types() {
    assert_eq!(text::<u64>(), "u64");
    assert_eq!(text::<usize>(), "u64");
    assert_eq!(text::<NonZeroI64>(), "i64");
    assert_eq!(text::<(bool, char, f32, f64)>(), "(bool,char,f32,f64)");
    assert_eq!(text::<(i8, u128, String, ())>(), "(i8,u128,string,())");
    assert_eq!(text::<(u8, Option<char>)>(), "(u8,option<char>)");
    assert_eq!(text::<HashMap<String, Vec<i64>>>(), "map<string:[i64]>");
    assert_eq!(text::<VecDeque<Option<()>>>(), "[option<()>]");
    assert_eq!(text::<[u16; 3]>(), "[u16;3]");
    assert_eq!(text::<(u16, u16, u16)>(), "[u16;3]");
    assert_eq!(text::<(u16,)>(), "(u16)");
}

#[test]
fn types_of_the_standard_library() {
    assert_eq!(text::<Range<u32>>(), "{start:u32,end:u32}");
    assert_eq!(text::<Result<u8, String>>(), "enum{Ok(u8),Err(string)}");
    assert_eq!(text::<Duration>(), "{secs:u64,nanos:u32}");
    assert_eq!(
        text::<SystemTime>(),
        "{secs_since_epoch:u64,nanos_since_epoch:u32}"
    );
    assert_eq!(text::<IpAddr>(), "enum{V4([u8;4]),V6([u8;16])}");
    assert_eq!(
        text::<SocketAddr>(),
        "enum{V4(([u8;4],u16)),V6(([u8;16],u16))}"
    );
    assert_eq!(text::<PathBuf>(), "string");
    assert_eq!(text::<HashSet<Box<str>>>(), "[string]");
}

#[derive(Deserialize)]
struct Order {
    id: NonZeroU16,
    lines: Vec<(String, f64)>,
    state: Phase,
    note: Option<Box<Order>>,
    tags: BTreeMap<u8, bool>,
}

#[derive(Deserialize)]
enum Phase {
    Open { since: u64 },
    Paid(u32, Option<Method>),
    Closed,
    Moved(Method),
}

#[derive(Deserialize)]
enum Method {
    Cash,
    Card(String),
}

#[test]
fn every_variant_is_seen_with_its_contents() {
    assert_eq!(
        text::<Order>(),
        "@0;{id:u16,lines:[(string,f64)],\
         state:enum{Open{since:u64},Paid(u32,option<@1>),Closed,Moved(@1)},\
         note:option<@0>,tags:map<u8:bool>};enum{Cash,Card(string)}"
    );
}

#[derive(Deserialize)]
struct List {
    value: u64,
    next: Option<Box<List>>,
}

#[derive(Deserialize)]
struct Tree(Vec<Tree>);

#[derive(Deserialize)]
struct Nested(Option<Box<Nested>>);

#[derive(Deserialize)]
enum Expression {
    Add(Box<Expression>, Box<Expression>),
    Call { body: Block, args: Vec<Expression> },
    Number(i64),
}

#[derive(Deserialize)]
struct Block {
    label: Option<Label>,
    last: Box<Statement>,
}

#[derive(Deserialize)]
enum Statement {
    Nested(Block),
    If(Expression, Block, Option<Block>),
    Value(Expression),
    Done,
}

#[derive(Deserialize)]
struct Label(String);

#[test]
fn recursive_types_refer_to_themselves() {
    assert_eq!(text::<List>(), "@0;{value:u64,next:option<@0>}");
    assert_eq!(text::<Tree>(), "@0;[@0]");
    assert_eq!(text::<Nested>(), "@0;option<@0>");
    assert_eq!(
        text::<Expression>(),
        "@0;enum{Add(@0,@0),Call{body:@1,args:[@0]},Number(i64)};\
         {label:option<string>,last:enum{Nested(@1),If(@0,@1,option<@1>),Value(@0),Done}}"
    );
    assert!(text::<Statement>().starts_with("@0;enum{Nested(@1),If(@2,@1,option<@1>)"));
}

/// Every value of `Ping` contains a `Pong` and the other way round, up to their last variants.
#[derive(Deserialize)]
enum Ping {
    A(Pong, Vec<Pong>),
    B(Box<Pong>),
    C(Option<Box<Ping>>),
}

#[derive(Deserialize)]
enum Pong {
    X(Box<Ping>),
    Y(Box<Ping>, Phase),
    Z,
}

#[derive(Deserialize)]
enum Endless {
    Only(Box<Endless>),
}

#[test]
fn mutual_recursion_ends() {
    let phase = "enum{Open{since:u64},Paid(u32,option<@2>),Closed,Moved(@2)}";
    let pong = format!("enum{{X(@1),Y(@1,{phase}),Z}}");
    let ping = "enum{A(@0,[@0]),B(@0),C(option<@1>)}";
    let method = "enum{Cash,Card(string)}";
    assert_eq!(text::<Pong>(), format!("@0;{pong};{ping};{method}"));
    assert_eq!(
        text::<Ping>(),
        "@0;enum{A(@1,[@1]),B(@1),C(option<@0>)};\
         enum{X(@0),Y(@0,enum{Open{since:u64},Paid(u32,option<@2>),Closed,Moved(@2)}),Z};\
         enum{Cash,Card(string)}"
    );
    // It has no value, so nothing can be deserialised.
    assert_eq!(text::<Endless>(), "@0;enum{Only(@0)}");
    assert_eq!(text::<(u8, Endless, u8)>(), "(u8,@0,?);enum{Only(@0)}");
}

mod elsewhere {
    use super::*;

    /// Has the name, but not the fields, of another type.
    #[derive(Deserialize)]
    pub(super) struct List {
        items: Vec<u8>,
    }

    /// Has the shape of another type.
    #[derive(Deserialize)]
    pub(super) enum Way {
        Cash,
        Card(String),
    }
}

#[derive(Deserialize)]
struct Wrapper<T> {
    inner: T,
}

#[test]
fn types_are_told_apart_by_more_than_their_names() {
    assert_eq!(
        text::<(List, elsewhere::List)>(),
        "(@0,{items:[u8]});{value:u64,next:option<@0>}"
    );
    assert_eq!(
        text::<(Wrapper<u8>, Wrapper<String>, Wrapper<Wrapper<u8>>)>(),
        "(@0,{inner:string},{inner:@0});{inner:u8}"
    );
}

#[test]
fn equal_shapes_have_one_text() {
    #[derive(Deserialize)]
    struct Total(u64);
    #[derive(Deserialize)]
    struct Pair(Method, elsewhere::Way);
    assert_eq!(text::<Total>(), text::<u64>());
    assert_eq!(text::<Pair>(), "[enum{Cash,Card(string)};2]");
    assert_eq!(text::<Pair>(), text::<(elsewhere::Way, elsewhere::Way)>());

    // Unrolled once, a recursive type is still the same.
    #[derive(Deserialize)]
    struct Head {
        value: u64,
        next: Option<List>,
    }
    assert_eq!(text::<Head>(), text::<List>());
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Transparent(Vec<Transparent>);

#[derive(Deserialize)]
#[serde(try_from = "(u8, u8)")]
struct Ordered(u8, u8);

impl TryFrom<(u8, u8)> for Ordered {
    type Error = &'static str;

    fn try_from((low, high): (u8, u8)) -> Result<Self, &'static str> {
        if low < high {
            Ok(Ordered(low, high))
        } else {
            Err("not in order")
        }
    }
}

struct Id([u8; 16]);

/// As UUIDs do: 16 bytes, or nothing.
impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Id;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("16 bytes")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Id, E> {
                bytes.try_into().map(Id).map_err(E::custom)
            }
        }
        deserializer.deserialize_bytes(Visitor)
    }
}

struct Few(Vec<u8>);

/// At least one.
impl<'de> Deserialize<'de> for Few {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let few = Vec::deserialize(deserializer)?;
        if few.is_empty() {
            Err(D::Error::custom("none"))
        } else {
            Ok(Few(few))
        }
    }
}

struct Secret(String);

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "open sesame" => Ok(Secret(String::new())),
            _ => Err(D::Error::custom("wrong")),
        }
    }
}

#[derive(Deserialize)]
enum Guarded {
    Locked(u8, Secret, u8),
    Open(Box<Guarded>),
    Free(u16),
}

#[test]
fn types_that_refuse_dummies_are_tried_with_others() {
    assert_eq!(text::<Transparent>(), "@0;[@0]");
    assert_eq!(text::<(Ordered, i64)>(), "([u8;2],i64)");
    assert_eq!(
        text::<(Id, Option<Id>, bool)>(),
        "(bytes,option<bytes>,bool)"
    );
    assert_eq!(text::<(Few, Option<u32>, Few)>(), "([u8],option<u32>,[u8])");
}

#[test]
fn what_follows_a_refusal_is_opaque() {
    assert_eq!(text::<(u8, Secret, u8, u16)>(), "(u8,string,?,?)");
    assert_eq!(
        text::<(Guarded, u32)>(),
        "(@0,u32);enum{Locked(u8,string,?),Open(@0),Free(u16)}"
    );
    assert_eq!(text::<(Option<Secret>, u8)>(), "(option<string>,u8)");
    assert_eq!(text::<serde_json::Value>(), "?");
    assert_eq!(
        text::<(u8, Option<serde_json::Value>, u8)>(),
        "(u8,option<?>,u8)"
    );
}

struct Panics;

impl<'de> Deserialize<'de> for Panics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u32::deserialize(deserializer)?;
        panic!("this is part of the test");
    }
}

#[test]
fn a_panic_counts_as_a_refusal() {
    assert_eq!(text::<(u8, Panics, u8)>(), "(u8,u32,?)");
    assert_eq!(text::<(u8, Option<Panics>, u8)>(), "(u8,option<u32>,u8)");
}

struct Fickle;

/// Asks for something else each time.
impl<'de> Deserialize<'de> for Fickle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static TIMES: AtomicU32 = AtomicU32::new(0);
        match TIMES.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => u8::deserialize(deserializer).map(|_| Fickle),
            _ => String::deserialize(deserializer).map(|_| Fickle),
        }
    }
}

#[test]
fn types_that_contradict_themselves_are_opaque() {
    let schema = Schema::of_value::<(Fickle, Option<u8>, Option<u8>)>();
    assert!(schema.to_string().starts_with("(?,"), "{schema}");
}

macro_rules! deep {
    ($($inner:ident in $outer:ident),*) => {$(
        #[derive(Deserialize)]
        struct $outer {
            left: Box<$inner>,
            right: (Box<$inner>, u8),
        }
    )*};
}

#[derive(Deserialize)]
struct D0(u8, u16);

deep!(D0 in D1, D1 in D2, D2 in D3, D3 in D4, D4 in D5, D5 in D6, D6 in D7, D7 in D8, D8 in D9);
deep!(D9 in D10, D10 in D11, D11 in D12, D12 in D13, D13 in D14);

#[test]
fn the_text_grows_with_the_number_of_types() {
    // Written out it would be 2^14 times the innermost.
    let text = text::<D14>();
    assert!(text.len() < 1000, "{text}");
}

#[test]
fn long_arrays_are_looked_at_once() {
    struct Many;
    impl<'de> Deserialize<'de> for Many {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Visitor;
            impl<'de> serde::de::Visitor<'de> for Visitor {
                type Value = Many;

                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("many")
                }

                fn visit_seq<A: serde::de::SeqAccess<'de>>(
                    self,
                    mut elements: A,
                ) -> Result<Many, A::Error> {
                    while elements.next_element::<Phase>()?.is_some() {}
                    Ok(Many)
                }
            }
            deserializer.deserialize_tuple(20_000, Visitor)
        }
    }
    let text = text::<Many>();
    assert!(text.starts_with("[enum{Open{since:u64},Paid(u32,option<@0>)"));
    assert!(text.ends_with(";20000];enum{Cash,Card(string)}"), "{text}");
}

#[test]
fn renamed_members_are_quoted_where_they_must_be() {
    #[derive(Deserialize)]
    struct Renamed {
        #[serde(rename = "a \"b\"\\")]
        a: u8,
        #[serde(rename = "größe")]
        b: u8,
        #[serde(rename = "kebab-case")]
        c: u8,
        #[serde(rename = "")]
        d: u8,
    }
    assert_eq!(
        text::<Renamed>(),
        r#"{"a \"b\"\\":u8,"größe":u8,kebab-case:u8,"":u8}"#
    );
}

#[derive(Clone, PartialEq, Eq, StateKey)]
#[tidegate(crate = tidegate_state)]
struct Größe(u32, [u8; 4]);

#[derive(Clone, PartialEq, Eq, StateKey)]
#[tidegate(crate = tidegate_state)]
struct Nothing;

#[derive(Clone, PartialEq, Eq, StateKey)]
#[tidegate(crate = tidegate_state)]
enum Key {
    Leer,
    Wide(Größe, Option<Vec<u8>>),
    Named {
        r#type: (String, i8),
        größe: Nothing,
    },
}

#[test]
fn keys_tell_all_their_variants() {
    let schema = Schema::of_key::<Key>().unwrap();
    let text = r#"enum{Leer,Wide((u32,[u8;4]),option<bytes>),Named{type:(string,i8),"größe":()}}"#;
    assert_eq!(schema.to_string(), text);
    assert_eq!(Schema::of_key::<String>().unwrap().to_string(), "string");
    assert_eq!(Schema::of_key::<[u8; 0]>().unwrap().to_string(), "[u8;0]");
}

#[test]
fn what_is_no_schema_is_refused() {
    let problem = |text: &str| Schema::parse(text).unwrap_err().to_string();
    assert_eq!(
        problem(""),
        "schema is malformed at byte `0`: expected a shape"
    );
    assert_eq!(
        problem("u65"),
        "schema is malformed at byte `0`: expected a shape"
    );
    assert_eq!(
        problem("[u8"),
        "schema is malformed at byte `3`: expected `]` or `;`"
    );
    assert_eq!(
        problem("{a:@1};u8"),
        "schema refers to definition `1`, but has `1` of them"
    );
    assert_eq!(Schema::parse("#2 u8"), Err(SchemaError::Version));
    for text in [
        "u8 ",
        " u8",
        "(u8,)",
        "(,u8)",
        "option<u8",
        "option<>",
        "map<u8>",
        "map<u8:>",
        "{a}",
        "{a:}",
        "{:u8}",
        "{a:u8,}",
        "enum{A,,B}",
        "enum",
        "[u8;]",
        "[u8;01]",
        "[u8;4294967296]",
        "@",
        "@0",
        "@0;@0",
        "@00;u8",
        "{\"a\":u8}",
        "{\"ä:u8}",
        "{\"\\a\":u8}",
        "u8;",
        ";u8",
        "u8u8",
        "??",
        "()()",
        "{ä:u8}",
        "bytes8",
        "Bool",
    ] {
        assert!(Schema::parse(text).is_err(), "{text}");
    }
    let deep = |levels: usize| Schema::parse(&("[".repeat(levels) + "u8" + &"]".repeat(levels)));
    assert!(deep(127).is_ok());
    assert!(deep(128).is_err());
    assert!(deep(1_000_000).is_err());
}

/// Texts of any shape.
fn shapes() -> impl Strategy<Value = String> {
    let plain = prop::sample::select(vec!["()", "bool", "u8", "i128", "f32", "string", "?", "@0"]);
    let name = prop::sample::select(vec!["a", "b-2", "_", "\"ä\"", "\"\"", "\"\\\"\\\\,:\""]);
    plain
        .prop_map(str::to_owned)
        .prop_recursive(4, 40, 4, move |inner| {
            let many = prop::collection::vec(inner.clone(), 1..4).prop_map(|all| all.join(","));
            let field = (name.clone(), inner.clone()).prop_map(|(name, it)| format!("{name}:{it}"));
            let fields = prop::collection::vec(field, 0..4).prop_map(|all| all.join(","));
            prop_oneof![
                inner.clone().prop_map(|it| format!("option<{it}>")),
                inner.clone().prop_map(|it| format!("[{it}]")),
                (inner.clone(), any::<u32>()).prop_map(|(it, count)| format!("[{it};{count}]")),
                (inner.clone(), inner).prop_map(|(key, value)| format!("map<{key}:{value}>")),
                many.clone().prop_map(|all| format!("({all})")),
                fields.clone().prop_map(|all| format!("{{{all}}}")),
                (name.clone(), many, fields).prop_map(|(name, many, fields)| {
                    format!("enum{{{name},{name}({many}),{name}{{{fields}}},{name}()}}")
                }),
            ]
        })
}

proptest! {
    #[test]
    fn texts_are_read_back(text in shapes()) {
        let text = format!("{text};u8");
        prop_assert_eq!(Schema::parse(&text).unwrap().to_string(), text);
    }

    // Whatever is accepted is exactly what would be written.
    #[test]
    fn damaged_texts_are_refused_or_canonical(
        text in shapes(),
        at: prop::sample::Index,
        by in "[a-z0-9\\[\\](){}<>:;,@?\"\\\\]{0,2}",
    ) {
        let mut text = format!("{text};{{a:@0,b:u8}}");
        let at = at.index(text.len());
        if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
            text.replace_range(at..=at, &by);
        }
        if let Ok(schema) = Schema::parse(&text) {
            prop_assert_eq!(schema.to_string(), text);
        }
    }
}
