import java.util.List;
import java.util.function.IntSupplier;

public class Main {
    interface Shape {
        int area();

        default String show() {
            return getClass().getSimpleName().toLowerCase() + " " + area();
        }
    }

    record Rectangle(int width, int height) implements Shape {
        public int area() { return width * height; }
    }

    record Square(int side) implements Shape {
        public int area() { return side * side; }
    }

    static IntSupplier counter(int step) {
        int[] count = {0};
        return () -> count[0] += step;
    }

    public static void main(String[] args) {
        IntSupplier ones = counter(1), tens = counter(10);
        StringBuilder seen = new StringBuilder();
        for (IntSupplier each : List.of(ones, ones, tens, ones, tens)) seen.append(each.getAsInt()).append(' ');
        System.out.println(seen.toString().trim());
        for (Shape shape : List.of(new Square(3), new Rectangle(2, 5))) System.out.println(shape.show());
    }
}
