import java.math.BigInteger;
import java.util.stream.LongStream;

public class Main {
    public static void main(String[] args) {
        BigInteger product = LongStream.rangeClosed(1, 30).mapToObj(BigInteger::valueOf).reduce(BigInteger.ONE, BigInteger::multiply);
        System.out.println(product);
        System.out.println(product.toString().chars().map(Character::getNumericValue).sum());
    }
}
