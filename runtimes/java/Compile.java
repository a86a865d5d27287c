import com.sun.source.util.JavacTask;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.lang.model.element.Element;
import javax.lang.model.element.ElementKind;
import javax.lang.model.element.ExecutableElement;
import javax.lang.model.element.Modifier;
import javax.lang.model.element.TypeElement;
import javax.tools.Diagnostic;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;

/**
 * Compiles a program, or only looks at it: {@code Compile build|check SOURCE FOLDER [MORE...]}. Run in the workspace.
 * Classes go to FOLDER/classes, the name of the class to start to FOLDER/launch. A public class may have any name.
 */
public class Compile {
    private static final Path VARIABLES = Path.of("/palisade/Vars.java");

    /** The program: javac would insist that its name be that of its public class. */
    private static final class Program extends SimpleJavaFileObject {
        private final String name;
        private final String code;

        Program(String name, String code) {
            super(URI.create("string:///" + name), Kind.SOURCE);
            this.name = name;
            this.code = code;
        }

        @Override
        public CharSequence getCharContent(boolean ignoreErrors) {
            return code;
        }

        @Override
        public boolean isNameCompatible(String simpleName, Kind kind) {
            return kind == Kind.SOURCE;
        }

        @Override
        public String getName() {
            return name;
        }
    }

    public static void main(String[] args) throws IOException {
        boolean builds = args[0].equals("build");
        String code = Files.readString(Path.of(args[1]));
        Path classes = Files.createDirectories(Path.of(args[2], "classes"));
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        boolean[] failed = {false};
        int status;
        try (StandardJavaFileManager files = compiler.getStandardFileManager(null, Locale.ROOT, StandardCharsets.UTF_8)) {
            Program program = new Program(args[1], code);
            List<JavaFileObject> sources = new ArrayList<>(List.of(program));
            for (int i = 3; i < args.length; i++) files.getJavaFileObjects(args[i]).forEach(sources::add);
            if (Files.exists(VARIABLES)) {
                sources.add(new Program("Vars.java", packageLine(code) + Files.readString(VARIABLES)));
            }
            List<String> options = List.of("-d", classes.toString(), "-sourcepath", ".", "-g", "-proc:none", "-nowarn",
                    "-Xlint:none", "-XDdev=false");
            JavacTask task = (JavacTask) compiler.getTask(null, files, found -> {
                failed[0] |= found.getKind() == Diagnostic.Kind.ERROR;
                print(found);
            }, options, null, sources);
            String launch = mainClass(task.analyze());
            if (!failed[0] && builds) {
                task.generate();
                if (launch == null) {
                    System.err.println("error: no class has a method `public static void main(String[] args)`");
                    failed[0] = true;
                } else {
                    Files.writeString(Path.of(args[2], "launch"), launch + "\n");
                }
            }
            status = failed[0] ? 1 : 0;
        }
        System.err.flush();
        // No thread of the compiler is waited for.
        Runtime.getRuntime().halt(status);
    }

    /** The variables are declared in the program's own package. */
    private static String packageLine(String code) {
        Matcher found = Pattern.compile("(?m)^\\s*package\\s+[\\w.]+\\s*;").matcher(code);
        return found.find() ? found.group().strip() + " " : "";
    }

    /** The first class that can be started; a public one before others. */
    private static String mainClass(Iterable<? extends Element> elements) {
        String first = null;
        for (Element element : elements) {
            if (!(element instanceof TypeElement type) || type.getNestingKind().isNested()) continue;
            for (Element member : type.getEnclosedElements()) {
                if (!isMain(member)) continue;
                String name = type.getQualifiedName().toString();
                if (type.getModifiers().contains(Modifier.PUBLIC)) return name;
                if (first == null) first = name;
            }
        }
        return first;
    }

    private static boolean isMain(Element member) {
        return member.getKind() == ElementKind.METHOD
                && member.getSimpleName().contentEquals("main")
                && member.getModifiers().containsAll(Set.of(Modifier.PUBLIC, Modifier.STATIC))
                && ((ExecutableElement) member).getParameters().size() == 1
                && ((ExecutableElement) member).getParameters().get(0).asType().toString().equals("java.lang.String[]");
    }

    private static void print(Diagnostic<? extends JavaFileObject> found) {
        if (found.getKind() != Diagnostic.Kind.ERROR) return;
        String message = found.getMessage(Locale.ROOT);
        if (found.getSource() == null) {
            System.err.println("error: " + message);
            return;
        }
        String name = found.getSource().getName();
        System.err.println(name + ":" + found.getLineNumber() + ":" + found.getColumnNumber() + ": error: " + message);
        try {
            String[] lines = found.getSource().getCharContent(true).toString().split("\n", -1);
            String line = lines[(int) found.getLineNumber() - 1];
            System.err.println("    " + line);
            System.err.println("    " + " ".repeat((int) Math.min(200, found.getColumnNumber() - 1)) + "^");
        } catch (IOException | RuntimeException none) {
            // The place was told; the line itself is a courtesy.
        }
    }
}
