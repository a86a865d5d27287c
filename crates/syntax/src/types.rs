//! TypeScript's types taken out of a program in place, and what is more than a type turned into JavaScript.
//!
//! Types, modifiers and declarations without a value become blanks; enums, namespaces, parameter properties and
//! `import x = require()` are rewritten around the program's own text ([`crate::values`]). Positions stay.
//! Decorators have no counterpart in Node and are an error.

use std::collections::HashSet;

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_semantic::Scoping;
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::ScopeFlags;
use oxc_syntax::symbol::SymbolId;

use crate::edits::Edits;
use crate::program::Problem;

/// Words before a member or parameter that mean nothing at run time.
const MODIFIERS: [&str; 7] =
    ["public", "private", "protected", "readonly", "override", "abstract", "declare"];

/// Takes the types out.
pub(crate) struct Strip<'e, 'a> {
    pub(crate) edits: &'e mut Edits<'a>,
    pub(crate) scoping: &'e Scoping,
    pub(crate) problems: Vec<Problem>,
    /// Enums and namespaces whose variable exists already.
    pub(crate) declared: HashSet<SymbolId>,
    /// The statement that is handed over as an expression: it ends with a parenthesis.
    pub(crate) handed_over: Option<Span>,
    /// Enums whose bodies are being rewritten, by name.
    pub(crate) enums: Vec<String>,
}

impl<'e, 'a> Strip<'e, 'a> {
    pub(crate) fn new(edits: &'e mut Edits<'a>, scoping: &'e Scoping) -> Self {
        Self {
            edits,
            scoping,
            problems: Vec::new(),
            declared: HashSet::new(),
            handed_over: None,
            enums: Vec::new(),
        }
    }

    /// First place of a letter within a range, comments apart.
    pub(crate) fn find(&self, start: u32, end: u32, wanted: char) -> Option<u32> {
        let mut rest = self.edits.text(start, end);
        let mut at = start;
        while let Some(letter) = rest.chars().next() {
            let skip = match letter {
                '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |close| close + 2),
                '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
                _ if letter == wanted => return Some(at),
                _ => letter.len_utf8(),
            };
            rest = &rest[skip..];
            at += u32::try_from(skip).unwrap_or(0);
        }
        None
    }

    fn blank_letter(&mut self, start: u32, end: u32, letter: char) {
        if let Some(at) = self.find(start, end, letter) {
            self.edits.blank(at, at + 1);
        }
    }

    /// Blanks the words of `MODIFIERS` within a range; the first, if it begins the range, becomes a semicolon where
    /// that is allowed, so that a line like `private [x] = 1` is not read as part of the one before.
    fn modifiers(&mut self, start: u32, end: u32, is_member: bool) {
        let text = self.edits.text(start, end);
        for word in
            text.split(|letter: char| !letter.is_ascii_alphabetic()).filter(|word| MODIFIERS.contains(word))
        {
            let from = word.as_ptr() as usize - text.as_ptr() as usize;
            let number = |value: usize| start + u32::try_from(value).unwrap_or(0);
            let span = Span::new(number(from), number(from + word.len()));
            if from == 0 && is_member {
                self.edits.erase(span)
            } else {
                self.edits.blank(span.start, span.end)
            }
        }
    }

    fn refuse_decorators(&mut self, decorators: &[Decorator<'a>]) {
        if let Some(first) = decorators.first() {
            let message = "decorators are not supported: Node has none, and they are more than types";
            self.problems.push(Problem::at(self.edits.source(), first.span.start, message));
        }
    }

    /// Whether anything but a type refers to a name.
    pub(crate) fn is_used_as_value(&self, binding: &BindingIdentifier<'a>) -> bool {
        let Some(symbol) = binding.symbol_id.get() else { return true };
        self.scoping.get_resolved_references(symbol).any(|reference| reference.is_value())
    }

    fn strip_import(&mut self, it: &ImportDeclaration<'a>) {
        let Some(specifiers) = it.specifiers.as_ref().filter(|list| !list.is_empty()) else {
            if it.import_kind == ImportOrExportKind::Type {
                self.edits.erase(it.span);
            }
            return;
        };
        let is_kept = |specifier: &&ImportDeclarationSpecifier<'a>| match specifier {
            ImportDeclarationSpecifier::ImportSpecifier(named) => {
                named.import_kind == ImportOrExportKind::Value && self.is_used_as_value(&named.local)
            }
            ImportDeclarationSpecifier::ImportDefaultSpecifier(it) => self.is_used_as_value(&it.local),
            ImportDeclarationSpecifier::ImportNamespaceSpecifier(it) => self.is_used_as_value(&it.local),
        };
        let kept: Vec<_> = specifiers.iter().filter(is_kept).collect();
        if it.import_kind == ImportOrExportKind::Type || kept.is_empty() {
            self.edits.erase(it.span);
        } else if kept.len() < specifiers.len() {
            let text = import_clause(self.edits, &kept);
            self.edits.replace(it.span.start, it.source.span.start, format!("import {text} from "));
        }
    }

    fn strip_export(&mut self, it: &ExportNamedDeclaration<'a>) {
        let is_type = |specifier: &ExportSpecifier<'a>| {
            let declared = match &specifier.local {
                ModuleExportName::IdentifierReference(name) => name.reference_id.get(),
                _ => None,
            };
            let symbol = declared.and_then(|id| self.scoping.get_reference(id).symbol_id());
            let is_only_type = symbol.is_some_and(|symbol| {
                let flags = self.scoping.symbol_flags(symbol);
                !flags.is_value() && !flags.is_import() && flags.is_type()
            });
            specifier.export_kind == ImportOrExportKind::Type || is_only_type
        };
        let kept: Vec<&str> = it
            .specifiers
            .iter()
            .filter(|specifier| !is_type(specifier))
            .map(|specifier| self.edits.text(specifier.span.start, specifier.span.end))
            .collect();
        if it.export_kind == ImportOrExportKind::Type {
            self.edits.erase(it.span);
        } else if kept.len() < it.specifiers.len() {
            let text = format!("export {{ {} }};", kept.join(", "));
            self.edits.replace(it.span.start, it.span.end, text);
        }
    }

    fn strip_export_from(&mut self, it: &ExportFromDeclaration<'a>) {
        let is_type = |specifier: &&ExportSpecifier<'a>| specifier.export_kind == ImportOrExportKind::Type;
        if it.export_kind == ImportOrExportKind::Type {
            self.edits.erase(it.span);
        } else if it.specifiers.iter().any(|specifier| is_type(&specifier)) {
            let kept: Vec<&str> = it
                .specifiers
                .iter()
                .filter(|specifier| !is_type(specifier))
                .map(|specifier| self.edits.text(specifier.span.start, specifier.span.end))
                .collect();
            let text = format!("export {{ {} }} from ", kept.join(", "));
            self.edits.replace(it.span.start, it.source.span.start, text);
        }
    }

    /// Takes a whole declaration out if it has no value; says whether it did.
    pub(crate) fn erase_if_type(&mut self, declaration: &Declaration<'a>, statement: Span) -> bool {
        let is_type = match declaration {
            Declaration::TSTypeAliasDeclaration(_)
            | Declaration::TSInterfaceDeclaration(_)
            | Declaration::TSExternalModuleDeclaration(_)
            | Declaration::TSGlobalDeclaration(_) => true,
            Declaration::VariableDeclaration(it) => it.declare,
            Declaration::FunctionDeclaration(it) => it.declare || it.body.is_none(),
            Declaration::ClassDeclaration(it) => it.declare,
            Declaration::TSEnumDeclaration(it) => it.declare,
            Declaration::TSNamespaceDeclaration(it) => it.declare || !has_value(it),
            Declaration::TSImportEqualsDeclaration(it) => {
                let is_internal =
                    !matches!(it.module_reference, TSModuleReference::ExternalModuleReference(_));
                it.import_kind == ImportOrExportKind::Type || (is_internal && !self.is_used_as_value(&it.id))
            }
        };
        if is_type {
            self.edits.erase(statement);
        }
        is_type
    }

    fn optional_mark(&mut self, is_there: bool, start: u32, end: u32) {
        if is_there {
            self.blank_letter(start, end, '?');
        }
    }
}

fn import_clause(edits: &Edits<'_>, kept: &[&ImportDeclarationSpecifier<'_>]) -> String {
    let text = |span: Span| edits.text(span.start, span.end).to_owned();
    let named: Vec<String> = kept
        .iter()
        .filter(|specifier| matches!(specifier, ImportDeclarationSpecifier::ImportSpecifier(_)))
        .map(|specifier| text(specifier.span()))
        .collect();
    let mut parts: Vec<String> = kept
        .iter()
        .filter(|specifier| !matches!(specifier, ImportDeclarationSpecifier::ImportSpecifier(_)))
        .map(|specifier| text(specifier.span()))
        .collect();
    if !named.is_empty() {
        parts.push(format!("{{ {} }}", named.join(", ")));
    }
    parts.join(", ")
}

/// Whether a namespace holds more than types.
pub(crate) fn has_value(it: &TSNamespaceDeclaration<'_>) -> bool {
    let of_declaration = |declaration: &Declaration<'_>| match declaration {
        Declaration::TSTypeAliasDeclaration(_) | Declaration::TSInterfaceDeclaration(_) => false,
        Declaration::TSNamespaceDeclaration(inner) => has_value(inner),
        _ => true,
    };
    match &it.body {
        TSNamespaceDeclarationBody::TSNamespaceDeclaration(inner) => has_value(inner),
        TSNamespaceDeclarationBody::TSModuleBlock(block) => {
            block.body.iter().any(|statement| match statement {
                Statement::ExportDeclaration(export) => of_declaration(&export.declaration),
                other => other.as_declaration().is_none_or(&of_declaration),
            })
        }
    }
}

impl<'a> Visit<'a> for Strip<'_, 'a> {
    fn visit_statement(&mut self, it: &Statement<'a>) {
        let mark = self.edits.mark();
        match it {
            Statement::ImportDeclaration(import) => return self.strip_import(import),
            Statement::ExportNamedDeclaration(export) => return self.strip_export(export),
            Statement::ExportFromDeclaration(export) => return self.strip_export_from(export),
            Statement::ExportAllDeclaration(export) => {
                if export.export_kind == ImportOrExportKind::Type {
                    self.edits.erase(export.span);
                }
                return;
            }
            Statement::ExportDeclaration(export) => return self.exported(export, None),
            Statement::ExportDefaultDeclaration(export) => {
                let is_type = match &export.declaration {
                    ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => true,
                    ExportDefaultDeclarationKind::FunctionDeclaration(function) => function.body.is_none(),
                    _ => false,
                };
                if is_type {
                    return self.edits.erase(export.span);
                }
            }
            Statement::TSExportAssignment(export) => {
                self.edits.replace(export.span.start, export.expression.span().start, "module.exports = ");
            }
            Statement::TSNamespaceExportDeclaration(export) => return self.edits.erase(export.span),
            _ => {
                if let Some(declaration) = it.as_declaration()
                    && (self.erase_if_type(declaration, it.span())
                        || self.rewritten(declaration, it.span(), None))
                {
                    return;
                }
            }
        }
        walk::walk_statement(self, it);
        let ends_openly = !self.edits.text(it.span().start, it.span().end).ends_with(';');
        let may_run_on = matches!(
            it,
            Statement::VariableDeclaration(_)
                | Statement::ExpressionStatement(_)
                | Statement::ReturnStatement(_)
                | Statement::ThrowStatement(_)
        );
        if ends_openly && may_run_on && self.handed_over != Some(it.span()) {
            self.edits.close_statement(mark, it.span().end);
        }
    }

    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        let start = it.span.start;
        // The span may or may not begin with the colon.
        let colon = if self.edits.text(start, start + 1) == ":" {
            start
        } else {
            let before = self.edits.text(0, start).trim_end();
            if before.ends_with(':') { u32::try_from(before.len() - 1).unwrap_or(start) } else { start }
        };
        self.edits.blank(colon, it.span.end);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.edits.blank(it.span.start, it.span.end);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.edits.blank(it.span.start, it.span.end);
    }

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.visit_expression(&it.expression);
        self.edits.blank(it.expression.span().end, it.span.end);
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.visit_expression(&it.expression);
        self.edits.blank(it.expression.span().end, it.span.end);
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.visit_expression(&it.expression);
        self.edits.blank(it.span.end - 1, it.span.end);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        self.edits.blank(it.span.start, it.expression.span().start);
        self.visit_expression(&it.expression);
    }

    fn visit_ts_this_parameter(&mut self, it: &TSThisParameter<'a>) {
        let rest = self.edits.source().get(it.span.end as usize..).unwrap_or_default();
        let white = u32::try_from(rest.len() - rest.trim_start().len()).unwrap_or(0);
        let comma = if rest.trim_start().starts_with(',') { white + 1 } else { 0 };
        self.edits.blank(it.span.start, it.span.end + comma);
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        self.refuse_decorators(&it.decorators);
        self.modifiers(it.span.start, it.pattern.span().start, false);
        let end = it.type_annotation.as_ref().map_or(it.span.end, |annotation| annotation.span.start);
        self.optional_mark(it.optional, it.pattern.span().end, end.max(it.pattern.span().end + 1));
        walk::walk_formal_parameter(self, it);
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if let Some(annotation) = it.type_annotation.as_ref().filter(|_| it.definite) {
            self.blank_letter(it.id.span().end, annotation.span.start.max(it.id.span().end + 1), '!');
        }
        walk::walk_variable_declarator(self, it);
    }

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        let has_break = |span: Span| self.edits.text(span.start, span.end).contains('\n');
        let broken =
            it.return_type.as_ref().map(|annotation| annotation.span).filter(|span| has_break(*span));
        let closing = it.params.span.end.saturating_sub(1);
        match broken {
            // No line break may stand before `=>`: the parenthesis moves to the end of what is taken out.
            Some(span) if self.edits.text(closing, closing + 1) == ")" => {
                self.edits.blank(closing, span.end - 1);
                self.edits.replace(span.end - 1, span.end, ")");
                if let Some(types) = &it.type_parameters {
                    self.visit_ts_type_parameter_declaration(types);
                }
                self.visit_formal_parameters(&it.params);
                self.visit_arrow_function_body(&it.body);
            }
            _ => walk::walk_arrow_function_expression(self, it),
        }
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        self.refuse_decorators(&it.decorators);
        if it.r#abstract {
            let end = it.id.as_ref().map_or(it.body.span.start, |id| id.span.start);
            let text = self.edits.text(it.span.start, end);
            if let Some(at) = text.find("abstract") {
                let at = it.span.start + u32::try_from(at).unwrap_or(0);
                self.edits.blank(at, at + 8);
            }
        }
        if let (Some(first), Some(last)) = (it.implements.first(), it.implements.last()) {
            let before = self.edits.text(it.span.start, first.span.start);
            if let Some(at) = before.rfind("implements") {
                self.edits.blank(it.span.start + u32::try_from(at).unwrap_or(0), last.span.end);
            }
        }
        if let Some(types) = &it.type_parameters {
            self.visit_ts_type_parameter_declaration(types);
        }
        if let Some(heritage) = &it.heritage {
            self.visit_expression(&heritage.expression);
            if let Some(arguments) = &heritage.type_arguments {
                self.visit_ts_type_parameter_instantiation(arguments);
            }
        }
        self.visit_class_body(&it.body);
    }

    fn visit_class_element(&mut self, it: &ClassElement<'a>) {
        let is_type = match it {
            ClassElement::TSIndexSignature(_) => true,
            ClassElement::MethodDefinition(method) => method.value.body.is_none(),
            ClassElement::PropertyDefinition(property) => {
                property.declare || property.r#type == PropertyDefinitionType::TSAbstractPropertyDefinition
            }
            ClassElement::AccessorProperty(property) => {
                property.r#type == AccessorPropertyType::TSAbstractAccessorProperty
            }
            ClassElement::StaticBlock(_) => false,
        };
        if is_type { self.edits.erase(it.span()) } else { walk::walk_class_element(self, it) }
    }

    fn visit_method_definition(&mut self, it: &MethodDefinition<'a>) {
        self.refuse_decorators(&it.decorators);
        self.modifiers(it.span.start, it.key.span().start, true);
        self.optional_mark(it.optional, it.key.span().end, it.value.span.start.max(it.key.span().end + 1));
        self.visit_property_key(&it.key);
        if it.kind == MethodDefinitionKind::Constructor {
            self.parameter_properties(&it.value);
        }
        self.visit_function(&it.value, ScopeFlags::Function);
    }

    fn visit_property_definition(&mut self, it: &PropertyDefinition<'a>) {
        let mark = self.edits.mark();
        self.refuse_decorators(&it.decorators);
        self.modifiers(it.span.start, it.key.span().start, true);
        let key_end = it.key.span().end;
        let end = it
            .type_annotation
            .as_ref()
            .map_or(it.span.end, |annotation| annotation.span.start)
            .max(key_end + 1);
        self.optional_mark(it.optional, key_end, end);
        if it.definite {
            self.blank_letter(key_end, end, '!');
        }
        walk::walk_property_definition(self, it);
        if !self.edits.text(it.span.start, it.span.end).ends_with(';') {
            self.edits.close_statement(mark, it.span.end);
        }
    }

    fn visit_accessor_property(&mut self, it: &AccessorProperty<'a>) {
        self.refuse_decorators(&it.decorators);
        self.modifiers(it.span.start, it.key.span().start, true);
        walk::walk_accessor_property(self, it);
    }

    fn visit_identifier_reference(&mut self, it: &IdentifierReference<'a>) {
        self.enum_member(it);
    }
}
