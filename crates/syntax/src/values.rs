//! What of TypeScript has a value at run time: enums, namespaces, parameter properties, `import x = ...`.
//!
//! Each becomes the JavaScript that the TypeScript compiler would write, put around the program's own text.

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};

use crate::types::Strip;

impl<'a> Strip<'_, 'a> {
    /// Rewrites a declaration that JavaScript does not have; says whether it was one. `owner` is the namespace that
    /// exports it.
    pub(crate) fn rewritten(
        &mut self,
        declaration: &Declaration<'a>,
        statement: Span,
        owner: Option<&str>,
    ) -> bool {
        match declaration {
            Declaration::TSEnumDeclaration(it) => self.enumeration(it, statement, owner),
            Declaration::TSNamespaceDeclaration(it) => self.namespace(it, statement, owner),
            Declaration::TSImportEqualsDeclaration(it) => {
                let end = it.id.span.start;
                let keyword = if owner.is_some() { "var " } else { "const " };
                self.edits.replace(statement.start, end, keyword);
                if let Some(owner) = owner {
                    self.edits.insert(it.id.span.end, format!(" = {owner}.{}", it.id.name));
                }
            }
            _ => return false,
        }
        true
    }

    /// `export` before a declaration, at the top level or within a namespace.
    pub(crate) fn exported(&mut self, it: &ExportDeclaration<'a>, owner: Option<&str>) {
        let declaration = &it.declaration;
        if self.erase_if_type(declaration, it.span) || self.rewritten(declaration, it.span, owner) {
            return;
        }
        let mark = self.edits.mark();
        walk::walk_declaration(self, declaration);
        let is_variable = matches!(declaration, Declaration::VariableDeclaration(_));
        if is_variable && !self.edits.text(it.span.start, it.span.end).ends_with(';') {
            self.edits.close_statement(mark, it.span.end);
        }
        let Some(owner) = owner else { return };
        self.edits.blank(it.span.start, declaration.span().start);
        match declaration {
            Declaration::ClassDeclaration(class) => {
                let name = class.id.as_ref().map(|id| id.name.as_str()).unwrap_or_default();
                self.edits.insert(it.span.end, format!(";{owner}.{name}={name};"));
            }
            Declaration::VariableDeclaration(variables) => {
                let mut names = Names::default();
                names.visit_variable_declaration(variables);
                let hand_over = names.0.iter().map(|name| match variables.kind {
                    VariableDeclarationKind::Const => format!("{owner}.{name}={name};"),
                    _ => format!(
                        "Object.defineProperty({owner},\"{name}\",{{enumerable:true,configurable:true,\
                         get:()=>{name},set(v){{{name}=v}}}});"
                    ),
                });
                let text: String = hand_over.collect();
                self.edits.insert(it.span.end, format!(";{text}"));
            }
            _ => {}
        }
    }

    /// `var N;`, once, and not where a class or function of that name is there to be added to.
    fn variable(&mut self, id: &BindingIdentifier<'a>, is_exported: bool, owner: Option<&str>) -> String {
        // The parenthesis that follows must not make a call of the line before.
        let none = ";".to_owned();
        let Some(symbol) = id.symbol_id.get() else { return none };
        let flags = self.scoping.symbol_flags(symbol);
        if !self.declared.insert(symbol) || flags.is_class() || flags.is_function() {
            return none;
        }
        let export = if is_exported && owner.is_none() { "export " } else { "" };
        format!("{export}var {};", id.name)
    }

    /// What the function around a body is called with.
    fn argument(name: &str, owner: Option<&str>) -> String {
        match owner {
            Some(owner) => format!("{name}={owner}.{name}||({owner}.{name}={{}})"),
            None => format!("{name}||({name}={{}})"),
        }
    }

    fn enumeration(&mut self, it: &TSEnumDeclaration<'a>, statement: Span, owner: Option<&str>) {
        let name = it.id.name.as_str();
        let head = self.variable(&it.id, statement.start < it.span.start, owner);
        let body = it.body.span;
        self.edits.replace(statement.start, body.start + 1, format!("{head}(function({name}){{"));
        self.enums.push(name.to_owned());
        let mut previous = Previous::None;
        let mut strings: Vec<String> = Vec::new();
        for (index, member) in it.body.members.iter().enumerate() {
            let key = member_name(&member.id);
            let quoted = serde_json::to_string(&key).unwrap_or_default();
            let next = it.body.members.get(index + 1).map_or(body.end - 1, |next| next.span.start);
            match &member.initializer {
                Some(value) if is_text(value, &strings) => {
                    self.edits.replace(member.span.start, value.span().start, format!("{name}[{quoted}]="));
                    self.visit_expression(value);
                    self.edits.insert(value.span().end, ";");
                    strings.push(key.clone());
                    previous = Previous::Unknown(quoted);
                }
                Some(value) => {
                    self.edits.replace(
                        member.span.start,
                        value.span().start,
                        format!("{name}[{name}[{quoted}]="),
                    );
                    self.visit_expression(value);
                    self.edits.insert(value.span().end, format!("]={quoted};"));
                    previous = match value {
                        Expression::NumericLiteral(number) => Previous::Number(number.value),
                        _ => Previous::Unknown(quoted),
                    };
                }
                None => {
                    let value = previous.next(name);
                    let text = format!("{name}[{name}[{quoted}]={value}]={quoted};");
                    self.edits.replace(member.span.start, member.span.end, text);
                    previous = match previous {
                        Previous::None => Previous::Number(0.0),
                        Previous::Number(number) => Previous::Number(number + 1.0),
                        Previous::Unknown(_) => Previous::Unknown(quoted),
                    };
                }
            }
            if let Some(comma) = self.find(member.span.end, next, ',') {
                self.edits.blank(comma, comma + 1);
            }
        }
        self.enums.pop();
        self.edits.replace(
            body.end - 1,
            statement.end.max(body.end),
            format!("}})({});", Self::argument(name, owner)),
        );
    }

    /// A member named within its own enum is that enum's.
    pub(crate) fn enum_member(&mut self, it: &IdentifierReference<'a>) {
        let Some(name) = self.enums.last() else { return };
        let symbol = it.reference_id.get().and_then(|id| self.scoping.get_reference(id).symbol_id());
        if symbol.is_some_and(|symbol| self.scoping.symbol_flags(symbol).is_enum_member()) {
            let text = format!("{name}.");
            self.edits.insert(it.span.start, text);
        }
    }

    fn namespace(&mut self, it: &TSNamespaceDeclaration<'a>, statement: Span, owner: Option<&str>) {
        let name = it.id.name.as_str();
        let mut head = self.variable(&it.id, statement.start < it.span.start, owner);
        head.push_str(&format!("(function({name}){{"));
        let close = format!("}})({});", Self::argument(name, owner));
        match &it.body {
            // `namespace A.B {}`: the dot begins the inner one.
            TSNamespaceDeclarationBody::TSNamespaceDeclaration(inner) => {
                self.edits.replace(statement.start, inner.span.start, head);
                self.namespace(inner, inner.span, Some(name));
                self.edits.insert(it.span.end, close);
            }
            TSNamespaceDeclarationBody::TSModuleBlock(block) => {
                self.edits.replace(statement.start, block.span.start + 1, head);
                self.edits.insert(block.span.start + 1, hoisted(block, name));
                for statement in &block.body {
                    match statement {
                        Statement::ExportDeclaration(export) => self.exported(export, Some(name)),
                        other => self.visit_statement(other),
                    }
                }
                self.edits.replace(block.span.end - 1, block.span.end, close);
            }
        }
    }

    /// `constructor(private x)` sets `this.x`, after `super()` where there is one.
    pub(crate) fn parameter_properties(&mut self, function: &Function<'a>) {
        let Some(body) = &function.body else { return };
        let is_property =
            |it: &&FormalParameter<'a>| it.accessibility.is_some() || it.readonly || it.r#override;
        let names = function.params.items.iter().filter(is_property).filter_map(|it| match &it.pattern {
            BindingPattern::BindingIdentifier(id) => Some(id.name.as_str()),
            BindingPattern::AssignmentPattern(pattern) => match &pattern.left {
                BindingPattern::BindingIdentifier(id) => Some(id.name.as_str()),
                _ => None,
            },
            _ => None,
        });
        let text: String = names.map(|name| format!("this.{name}={name};")).collect();
        if text.is_empty() {
            return;
        }
        let is_super = |it: &&Statement<'a>| match it {
            Statement::ExpressionStatement(statement) => matches!(
                &statement.expression,
                Expression::CallExpression(call) if matches!(call.callee, Expression::Super(_))
            ),
            _ => false,
        };
        let start = body.directives.last().map_or(body.span.start + 1, |directive| directive.span.end);
        match body.statements.iter().find(is_super) {
            Some(call) => self.edits.insert(call.span().end, format!(";{text}")),
            None => self.edits.insert(start, format!(";{text}")),
        }
    }
}

/// Functions can be called before their line, also through their namespace.
fn hoisted(block: &TSModuleBlock<'_>, owner: &str) -> String {
    let names = block.body.iter().filter_map(|statement| match statement {
        Statement::ExportDeclaration(export) => match &export.declaration {
            Declaration::FunctionDeclaration(function) if function.body.is_some() => {
                function.id.as_ref().map(|id| id.name.as_str())
            }
            _ => None,
        },
        _ => None,
    });
    names.map(|name| format!("{owner}.{name}={name};")).collect()
}

/// The member before, as far as its value is known.
enum Previous {
    None,
    Number(f64),
    Unknown(String),
}

impl Previous {
    fn next(&self, name: &str) -> String {
        match self {
            Self::None => "0".to_owned(),
            Self::Number(number) => (number + 1.0).to_string(),
            Self::Unknown(quoted) => format!("{name}[{quoted}]+1"),
        }
    }
}

fn member_name(id: &TSEnumMemberName<'_>) -> String {
    match id {
        TSEnumMemberName::Identifier(name) => name.name.to_string(),
        TSEnumMemberName::String(text) | TSEnumMemberName::ComputedString(text) => text.value.to_string(),
        TSEnumMemberName::ComputedTemplateString(text) => text
            .quasis
            .first()
            .and_then(|part| part.value.cooked)
            .map(|text| text.to_string())
            .unwrap_or_default(),
    }
}

/// Members that are text have no way back from value to name.
fn is_text(value: &Expression<'_>, strings: &[String]) -> bool {
    match value {
        Expression::StringLiteral(_) | Expression::TemplateLiteral(_) => true,
        Expression::Identifier(name) => strings.iter().any(|known| *known == name.name.as_str()),
        Expression::StaticMemberExpression(member) => {
            strings.iter().any(|known| *known == member.property.name.as_str())
        }
        Expression::BinaryExpression(sum) => is_text(&sum.left, strings) || is_text(&sum.right, strings),
        Expression::ParenthesizedExpression(inner) => is_text(&inner.expression, strings),
        _ => false,
    }
}

#[derive(Default)]
struct Names(Vec<String>);

impl<'a> Visit<'a> for Names {
    fn visit_binding_identifier(&mut self, it: &BindingIdentifier<'a>) {
        self.0.push(it.name.to_string());
    }

    // Names of functions and parameters within an initial value are not ours.
    fn visit_expression(&mut self, _: &Expression<'a>) {}
}
